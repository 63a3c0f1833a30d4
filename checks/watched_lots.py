"""Compares a run's lots (the records from which each release was computed) with the sampling that was accounted. Also
compares the accountant's history with the observed releases: their number, noise and epsilon.

Under Poisson sampling every record is in every lot independently, with the accounted rate. All levels are exact or
bounds: of the number of records, of the records that are in many lots, of pairs of equal records in two lots, and of
two records in one lot. A check is skipped where another one has named the cause of what it would see.

Lots that hold fewer records than accounted are no fault: some records may come less often, or never. What such lots
show is then compared with the least that independent draws at any rates up to the accounted one allow.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import betaincinv, gammaln, xlog1py, xlogy
from scipy.stats import binom, hypergeom

from ..audit.arrays import FloatArray
from ..audit.check import ACCOUNTED, BLOCKS, LOTS, MULTIPLIER, OVERLAP, RATE, SIZES, STEPS, UPDATES, Check, CheckResult
from ..audit.claim import Adjacency
from ..audit.ledger import WATCHED
from ..defenses.accounting.accountant import epsilon_of
from ..defenses.accounting.stated_laws import event_of
from .training_record import TrainingRecord

_SLACK = 1e-6
_EPSILON_ROUNDING = 0.02
"""Relative difference between two accountants that is no fault: both round their losses, in either direction."""

_ROUNDING = 1e-3
_COMPARED = 2**33
"""Pairs of records, times lots, that are compared at most."""
_SELDOM = 1e-3
"""Probability of so few records at the accounted rate below which records count as drawn less often."""
_ERROR = 1e-13
"""Rounding of the probabilities of numbers of pairs."""
_APART = 6.0
"""Standard deviations from which on neighbours are not together by coins of their own."""
_NEW_LOTS = "draw a new lot for each step"
_ONE_RATE = "draw each record with the accounted rate, or account for the largest rate of a record"
_CARRIED = "records of one lot come again in the next one"
_OFTEN = "records are drawn with unequal rates, and some of them more often than accounted"
_WINDOWS = "records with adjacent indices are drawn together, as in a window of the data"


@dataclass(frozen=True, eq=False)
class Lots:
    """The lots of a run: ``ids``, one tuple per step, of indices of ``population`` records, each of which the
    accountant assumes to be drawn at ``rate``.
    """

    ids: tuple[tuple[int, ...], ...]
    population: int
    rate: float

    @property
    def sizes(self) -> FloatArray:
        return np.array([len(set(lot)) for lot in self.ids], dtype=float)

    @cached_property
    def least_rate(self) -> float:
        """The accounted sampling rate; if records were drawn less often, a lower confidence bound on their mean
        rate.
        """
        trials, drawn = self.population * len(self.ids), int(self.sizes.sum())
        if binom.cdf(drawn, trials, self.rate) >= _SELDOM:
            return self.rate
        return float(betaincinv(drawn, trials - drawn + 1, WATCHED.level("watched run"))) if drawn else 0.0

    def times(self) -> FloatArray:
        """Return the number of lots that contained each record, ``(population,)``."""
        counts = np.zeros(self.population)
        for lot in self.ids:
            counts[list(set(lot))] += 1
        return counts


def lot_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check that lots agree with the accountant's history; a record that enters one sum twice counts twice."""
    names = (LOTS, RATE, SIZES, OVERLAP, BLOCKS)
    seen = [one for one in recording.releases if one.ids is not None]
    reason = recording.remarks.get("lots", "it was not seen which records the lots hold")
    if not seen or recording.population is None:
        return [name.skipped(reason) for name in names]
    if 2 * len(seen) < len(recording.releases):
        unknown = f"the records are known for only {len(seen)} of {len(recording.releases)} lots"
        return [name.skipped(unknown) for name in names]
    once = _once(recording)
    rates = {rate for _, rate in recording.accounted_steps}
    if len(rates) != 1:
        why = (
            "nothing was accounted"
            if not rates
            else f"the accountant's history holds {len(rates)} different sampling rates"
        )
        return [once, *(name.skipped(why) for name in names[1:])]
    lots = Lots(tuple(one.ids or () for one in seen), recording.population, rates.pop())
    if lots.rate >= 1:
        return [once, *(_unneeded(name) for name in names[1:])]
    if once.passed is False:
        # A rate of several draws for one step shows in every other test, as the same fault.
        return [once, *(name.skipped("some records come twice in one lot") for name in names[1:])]
    return [once, *_drawn(lots)]


def _drawn(lots: Lots) -> list[CheckResult]:
    """Compare lots with Poisson sampling, first by what shows in later comparisons too."""
    if (rate := _rate(lots)).passed is False:
        words = "records are drawn too often, which shows here too"
        return [rate, *(name.skipped(words) for name in (SIZES, OVERLAP, BLOCKS))]
    if (again := _used_again(lots)) is not None:
        lots = replace(lots, ids=tuple(dict.fromkeys(tuple(sorted(set(lot))) for lot in lots.ids)))
    sizes, blocks = _sizes(lots), _blocks(lots)
    if blocks.passed is False:
        return [rate, sizes, again or OVERLAP.skipped("records are drawn together, which shows here too"), blocks]
    unequal, overlap = _unequal(lots), again or _overlap(lots)
    if unequal is not None and overlap.cause == _CARRIED:
        unequal = None
    if unequal is not None and overlap.cause == _OFTEN:
        overlap = OVERLAP.skipped("some records are drawn too often, which shows here too")
    return [unequal or rate, sizes, overlap, blocks]


def left_out(recording: TrainingRecord, reads: int) -> str:
    """Return how many of the records that were read enter a sum, in words, if far fewer do than are accounted; empty
    otherwise. Such a choice lowers no epsilon, and may depend on all records of a lot.

    ``reads``: of records, in all steps.
    """
    rates, lots = {rate for _, rate in recording.accounted_steps}, [one.ids for one in recording.releases]
    if None in lots or not lots or len(rates) != 1 or recording.population is None:
        return ""
    rate, entered = rates.pop(), sum(len(set(lot or ())) for lot in lots)
    trials = recording.population * len(lots)
    often = binom.cdf(reads, trials, rate) >= _SELDOM
    if not often or binom.cdf(entered, trials, rate) >= WATCHED.level("watched run"):
        return ""
    return (
        f"{entered} of {reads} records that were read enter a sum, and no run showed by which rule the others are left "
        "out, which may depend on other records: let all records of a lot enter"
    )


def _unneeded(name: Check) -> CheckResult:
    return name.skipped("the accountant assumes that every step uses all records (sampling rate 1)")


def _once(recording: TrainingRecord) -> CheckResult:
    """Check that no record entered one sum with two rows, each of which was clipped alone."""
    for release in recording.releases:
        if release.ids is None or release.rows is None or release.rows != len(release.ids):
            continue
        names, counts = np.unique(release.ids, return_counts=True)
        # Rows that are short enough together are one row within the clip norm, such as halves of two augmentations.
        short = release.longest is not None and release.longest * counts.max(initial=0) <= 1 + _ROUNDING
        if len(names) and counts.max() > 1 and not short:
            worst = int(counts.argmax())
            witness = (
                f"gradients of record {names[worst]} enter the sum of step {release.step}, each clipped separately"
            )
            return LOTS.failed(witness, int(counts[worst]), 1, unit="rows")
    compared = sum(one.rows is not None and one.ids is not None for one in recording.releases)
    return LOTS.passes(f"{compared} lots")


def _rate(lots: Lots) -> CheckResult:
    """Check that records are not drawn more often than accounted."""
    trials, drawn = lots.population * len(lots.ids), int(lots.sizes.sum())
    allowed = float(binom.isf(WATCHED.level("watched run", 2), trials, lots.rate)) / trials
    witness = (
        f"mean share of {lots.population} records in {len(lots.ids)} lots; the accounted sampling rate is "
        f"{lots.rate:.4g}"
    )
    return RATE.at_most(drawn / trials, allowed, unit="probability", witness=witness)


def _unequal(lots: Lots) -> CheckResult | None:
    """The failed check of how many records are in so many lots, or more; None if each number is one of draws at the
    accounted rate, or below it: of records that are drawn by coins of their own, it is binomial at most.
    """
    steps, n, rate = len(lots.ids), lots.population, lots.rate
    # Not of usual numbers, which records of a shuffled loader have more often.
    least = np.arange(1 + int(steps * rate + math.sqrt(steps * rate * (1 - rate))), steps + 1)
    if not len(least):
        return None
    counts = np.cumsum(np.bincount(lots.times().astype(int), minlength=steps + 1)[::-1])[::-1][least]
    chance = binom.sf(least - 1, steps, rate)
    tails = binom.sf(counts - 1, n, chance)
    level, most = WATCHED.level("watched run", 2 * steps), int(tails.argmin())
    if tails[most] >= level:
        return None
    share = f"in {least[most]} of {steps} lots or more"
    words = (
        f"{counts[most]} of {n} records, such as record {int(lots.times().argmax())}, are {share}; at the accounted "
        f"rate {rate:.4g} at most {binom.isf(level, n, chance[most]):g} are"
    )
    return RATE.failed(words, cause=_OFTEN, mend=_ONE_RATE)


def _sizes(lots: Lots) -> CheckResult:
    """Check that sizes vary as those of Poisson lots: neither too little nor, one by one, too much."""
    sizes, n, rate = lots.sizes, lots.population, lots.rate
    seldom = lots.least_rate < rate
    # For one mean rate, sizes vary the least if some records are drawn at the accounted rate, and others never.
    drawn = int(n * lots.least_rate / rate) if seldom else n
    width, chance = min(int(np.ptp(sizes)), drawn), _alike(sizes, drawn, rate)
    if chance < WATCHED.level("watched run", 2):
        words = (
            f"the sizes of {len(sizes)} lots differ by at most {width}; Poisson sampling of {drawn} records at "
            f"rate {rate:.4g} varies more"
        )
        return SIZES.at_least(float(sizes.std()), math.sqrt(drawn * rate * (1 - rate)), unit="records", witness=words)
    above = binom.sf(sizes - 1, n, rate)
    tails = 2 * (above if seldom else np.minimum(binom.cdf(sizes, n, rate), above))
    worst, level = int(np.argmin(tails)), WATCHED.level("watched run", 2 * len(sizes))
    words = (
        f"{sizes[worst]:g} of {n} records in the lot of step {worst}, the most unusual of {len(sizes)} lots at "
        f"sampling rate {rate:.4g}"
    )
    if tails[worst] >= level:
        return SIZES.passes(words)
    limit = f"{0 if seldom else binom.ppf(level / 2, n, rate):g} to {binom.isf(level / 2, n, rate):g} records allowed"
    return SIZES.failed(f"{words}; {limit}", cause="lots have sizes that Poisson sampling does not give")


def _alike(values: FloatArray, trials: int, rate: float) -> float:
    """A bound on the probability that independent binomial numbers differ by no more than these values."""
    width, below = min(int(np.ptp(values)), trials), binom.cdf(np.arange(trials + 1), trials, rate)
    inside = below[width:] - np.concatenate([[0.0], below[: trials - width]])
    # P(all within this width) is at most the sum over the places of the window.
    return math.exp(min(0.0, float(_log_sum(len(values) * np.log(np.maximum(inside, 1e-300))))))


def _log_sum(terms: FloatArray) -> float:
    top = terms.max()
    return float(top + np.log(np.exp(terms - top).sum()))


def _used_again(lots: Lots) -> CheckResult | None:
    """The failed check of two equal lots; None where there are none, or where they may come by chance."""
    steps, found = len(lots.ids), dict[frozenset[int], list[int]]()
    for step, drawn in enumerate(lots.ids):
        found.setdefault(frozenset(drawn), []).append(step)
    again = [(lot, places) for lot, places in found.items() if len(places) > 1]
    if not again:
        return None
    lot, places = max(again, key=lambda one: len(one[0]))
    pairs = steps * (steps - 1) // 2
    allowed = float(binom.isf(WATCHED.level("watched run", 8 * pairs), lots.population, lots.rate**2))
    if len(lot) <= allowed:
        return None
    more = f"; so are {len(again) - 1} other lots" if len(again) > 1 else ""
    words = f"the lots of steps {places[0]} and {places[1]} hold the same {len(lot)} records{more}"
    given = {"cause": "one lot is used for several steps, each of which is accounted as a new draw"}
    return OVERLAP.failed(words, len(lot), allowed, unit="records", mend=_NEW_LOTS, **given)


def _overlap(lots: Lots) -> CheckResult:
    """Check the number of equal records in two lots, over all pairs of lots, by its exact distribution: it is too small
    in passes over shuffled records.
    """
    steps = len(lots.ids)
    if steps < 2:
        return OVERLAP.skipped("the records of only one lot are known, so no two lots can be compared")
    if (found := _neighbours(lots)) is not None:
        return found
    times = lots.times()
    pairs, below = int((times * (times - 1) / 2).sum()), _pair_law(lots.population, steps, lots.rate).cumsum()
    level, expected = WATCHED.level("watched run", 8), lots.population * math.comb(steps, 2) * lots.rate**2
    # Rates that change from step to step may leave no pairs at all.
    if lots.least_rate >= lots.rate and below[min(pairs, len(below) - 1)] + _ERROR < level:
        words = f"times one record is in two of {steps} lots"
        return OVERLAP.at_least(pairs, int((below < level).sum()), unit="records", witness=words)
    if lots.least_rate >= lots.rate and _alike(times, steps, lots.rate) < level:
        words = f"all records are in {times.min():g} to {times.max():g} of {steps} lots, as records that take turns are"
        return OVERLAP.failed(words)
    words = f"{pairs} times one record is in two of {steps} lots; Poisson sampling gives {expected:.4g} on average"
    return OVERLAP.passes(words)


def _neighbours(lots: Lots) -> CheckResult | None:
    """The equal records in lots 2k and 2k + 1, or 2k + 1 and 2k + 2: binomial, where lots are Poisson lots.

    Lots that share no record within an epoch show here, also where the counts over many epochs are as usual.
    """
    held, level = [set(lot) for lot in lots.ids], WATCHED.level("watched run", 8)
    for first in (0, 1):
        places = range(first, len(held) - 1, 2)
        common = sum(len(held[n] & held[n + 1]) for n in places)
        trials, chance = lots.population * len(places), lots.rate**2
        witness = f"records that are in both lots of {len(places)} pairs of consecutive lots"
        if trials and lots.least_rate >= lots.rate and binom.cdf(common, trials, chance) < level:
            return OVERLAP.at_least(common, float(binom.ppf(level, trials, chance)), unit="records", witness=witness)
        if trials and binom.sf(common - 1, trials, chance) < level:
            allowed = float(binom.isf(level, trials, chance))
            cause, mend = (_CARRIED, _NEW_LOTS) if _carried(lots) else (_OFTEN, _ONE_RATE)
            return OVERLAP.at_most(common, allowed, unit="records", witness=witness, cause=cause, mend=mend)
    return None


def _carried(lots: Lots) -> bool:
    """Whether consecutive lots have further records in common than other lots, which records of unequal rates also
    have.
    """
    held, times = [set(lot) for lot in lots.ids], lots.times()
    near = sum(len(one & other) for one, other in pairwise(held))
    far, pairs = float((times * (times - 1) / 2).sum()) - near, math.comb(len(held) - 1, 2)
    each = lots.population * lots.rate**2
    return not pairs or 2 * (far / pairs - each) < near / (len(held) - 1) - each


def _pair_law(population: int, steps: int, rate: float) -> FloatArray:
    """The probability of each number of pairs, up to ``_ERROR``: the sum over records of C(c, 2), c ~ Bin(steps,
    rate).
    """
    taken = np.arange(steps + 1)
    log_chance = gammaln(steps + 1) - gammaln(taken + 1) - gammaln(steps - taken + 1)
    chance = np.exp(log_chance + xlogy(taken, rate) + xlog1py(steps - taken, -rate))
    weights = taken * (taken - 1) // 2
    mean, square = float(chance @ weights), float(chance @ weights.astype(float) ** 2)
    spread = math.sqrt(population * max(square - mean**2, 1e-12))
    size = 1 << int(max(population * mean + 60 * spread + 4 * weights[-1], 64)).bit_length()
    # A wrapped transform of so wide a range errs by less than any level in use; counts beyond it are cut off above.
    kept = weights < size
    single = np.bincount(weights[kept], weights=chance[kept], minlength=size)
    return np.maximum(np.fft.irfft(np.fft.rfft(single) ** population, size), 0.0)


def _blocks(lots: Lots) -> CheckResult:
    """Check the number of disjoint pairs of neighbouring records in one lot, such as those of a window of the data, and
    how often any two records are in one lot.

    Records that are drawn too often, each by its own coin, are together no more often than their numbers of lots give.
    """
    if (found := _partners(lots)) is not None:
        return found
    half, together = lots.population // 2, 0
    for lot in lots.ids:
        held = np.zeros(2 * half, dtype=bool)
        held[[one for one in set(lot) if one < 2 * half]] = True
        together += int((held[::2] & held[1::2]).sum())
    times = lots.times()[: 2 * half]
    usual = float(times[::2] @ times[1::2]) / len(lots.ids)
    trials = half * len(lots.ids)
    allowed = float(binom.isf(WATCHED.level("watched run", 2), trials, lots.rate**2)) if trials else 0.0
    words = f"pairs of records 2k and 2k + 1 in the same lot, among {trials} pairs"
    allowed = max(allowed, usual + _APART * math.sqrt(usual))
    return BLOCKS.at_most(together, allowed, unit="pairs", witness=words, cause=_WINDOWS)


def _partners(lots: Lots) -> CheckResult | None:
    """The failed check of two records, anywhere in the data, that are in one lot more often than by coins of their own,
    at the accounted rate and given the number of lots of each; None where there are none, or too many records to
    compare.
    """
    size, steps = lots.population, len(lots.ids)
    if size < 2 or size**2 * steps > _COMPARED:
        return None
    held = np.zeros((steps, size), dtype=np.float32)
    for turn, lot in enumerate(lots.ids):
        held[turn, list(set(lot))] = 1
    counts = np.triu(held.T @ held, 1)
    pairs = size * (size - 1) // 2
    level = WATCHED.level("watched run", 2 * pairs)
    allowed, times = float(binom.isf(level, steps, lots.rate**2)), lots.times()
    ones, others = np.nonzero(counts > allowed)
    most = counts[ones, others]
    apart = hypergeom.sf(most - 1, steps, times[ones], times[others]) < level
    if not apart.any():
        return None
    worst = int(np.where(apart, most, 0).argmax())
    words = f"lots that hold both records {ones[worst]} and {others[worst]}, among {steps} lots"
    return BLOCKS.failed(words, int(most[worst]), allowed, unit="lots")


def ledger_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check that the accountant counts every release, with no more noise than stated, and prints a correct epsilon."""
    if recording.ledger is None:
        reason = recording.remarks.get("ledger", "there is no accountant")
        return [name.skipped(reason) for name in (STEPS, MULTIPLIER, ACCOUNTED, UPDATES)]
    return [_steps(recording), _multiplier(recording), _epsilon(recording), _updates(recording)]


def _steps(recording: TrainingRecord) -> CheckResult:
    accounted = len(recording.accounted_steps)
    witness = "noised sums of the run that are in the accountant's history"
    if recording.earlier:
        witness += f", not counting {recording.earlier} steps from before the run"
    return STEPS.at_least(accounted, len(recording.releases), unit="steps", witness=witness)


def _multiplier(recording: TrainingRecord) -> CheckResult:
    """Compare the multipliers in the order of the steps; a history that is too short covers the first ones.

    Further steps of the history may be those of an older training, or pay for other numbers, at any place.
    """
    accounted = [noise for noise, _ in recording.accounted_steps]
    pairs = list(zip(recording.releases, accounted, strict=False))
    if not pairs:
        return MULTIPLIER.skipped("no step was accounted")
    if len(accounted) > len(recording.releases) and _fits(accounted, recording):
        return MULTIPLIER.passes(f"the {len(accounted)} accounted steps include the noise of each release")
    release, noise = max(pairs, key=lambda pair: pair[1] - pair[0].noise_multiplier)
    witness = (
        f"noise multiplier accounted for step {release.step}, in which the system states {release.noise_multiplier:.6g}"
    )
    slack = _SLACK * release.noise_multiplier
    return MULTIPLIER.at_most(noise, release.noise_multiplier, unit="", witness=witness, slack=slack)


def _fits(accounted: list[float], recording: TrainingRecord) -> bool:
    """Whether the history has steps in the order of the releases with no more noise than these."""
    steps = iter(accounted)
    return all(any(noise <= one.noise_multiplier * (1 + _SLACK) for noise in steps) for one in recording.releases)


def _epsilon(recording: TrainingRecord) -> CheckResult:
    """Compare the printed epsilon with that of the history, computed again by privacy-loss distributions."""
    if recording.accounted is None or recording.delta is None or not recording.ledger:
        return ACCOUNTED.skipped("the accountant printed no epsilon")
    event, delta = event_of(recording.ledger), recording.delta
    again = epsilon_of(event, delta=delta, adjacency=Adjacency.ADD_REMOVE)
    if not math.isfinite(again):
        return ACCOUNTED.skipped("the accountant's history implies no finite epsilon")
    witness = f"printed at delta {delta:g}; the history implies {again:.4g}, of which 2 % may be rounding"
    required = again * (1 - _EPSILON_ROUNDING)
    return ACCOUNTED.at_least(recording.accounted, required, unit="epsilon", witness=witness)


def _updates(recording: TrainingRecord) -> CheckResult:
    if recording.steps is None:
        return UPDATES.skipped("updates of the model were not counted")
    without = recording.steps - len(recording.releases)
    witness = f"updates without a release, among {recording.steps} updates of the model"
    return UPDATES.at_most(max(0, without), 0, unit="updates", witness=witness)
