"""Lower bound on epsilon from guesses of the inputs of independent runs; the attack may guess only a few of them.

A rule that was fixed before guesses the second input above one threshold of a score, the first one at or below another,
and nothing between them. Where a fair coin chose the input of each run, a guess is right with probability at most ``r``
and wrong with at least ``w``, with ``r <= e^epsilon w + delta'`` (Kairouz, Oh, Viswanath 2015), where ``delta'`` is
``delta / 2`` for each of the two inputs that the rule guesses. Of the runs with a guess, each is therefore wrong with
probability at least ``(1 - delta' / (r + w)) / (1 + e^epsilon)``, independently of the others: the bound of Clopper and
Pearson (1934) on this probability holds at the whole of alpha, as no unknown rate of one input is left; at delta > 0 a
hundredth of alpha bounds ``r + w`` (as in Steinke, Nasr, Jagielski 2023, theorem 5.2, for the canaries of one run).

Outputs that point to the first input count like those that point to the second. Two bounds on the rates of one event
use the outputs on one side alone, and have half of alpha each.

Runs whose numbers were fixed in each arm become runs of fair coins: coins are thrown afterwards for a number of runs
that was fixed before, and each takes the next run of its arm. Where an arm has too few, which happens in one of 1,000
audits, they are thrown again, which a thousandth of alpha pays for. The coins follow a digest of what was measured:
with one seed for all audits, the same arm would always have more.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, bdtri, ndtr, ndtri

from ..arrays import FloatArray
from ..binomial import ErrorCounts, check_epsilon, upper_bound
from ..bisection import crossing, fewest
from ..curve import Curve, epsilon_from_mu, mu_from_epsilon
from ..evidence import Guesses, MembershipScores, Setting, whole
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..threshold import CountingPlan, FixedThreshold, SplitThreshold, ThresholdPolicy, below_cuts
from .joint_point import check_independent_trials, measured_counts
from .one_run_fdp import detectable_gaussian

_FEWEST, FAILS = 64, 1e-3
_POWER, _REACH = 0.9, 60.0
_CAUTION = 0.25
"""Share of the selection bias that is subtracted where one score chooses its rule: rarer guesses than with the whole of
it, which proved more of Gaussian and subsampled scores, and as much of randomised response."""
_PAID = 0.01
"""Share of alpha that bounds how often a guess is made, where delta > 0."""
# The exact test of a ratio errs by so much more than its normal approximation, because it bounds an unknown rate.
_LOSS = 1.1


def selection_bias(likely: FloatArray, rare: FloatArray, pilot: int, compared: int = 1) -> FloatArray:
    """Return the bias from choosing the best of many thresholds on a pilot, in standard errors.

    ``likely``, ``rare``: (k,) the rates of ``pilot`` trials above each threshold, on either input. Each halving of an
    event is one more look at the pilot, so that the bias grows with rarity as in the law of the iterated logarithm.
    ``compared``: the number of scores or events of which the best is taken; they look at much the same, so that only
    the fourth root of their number counts as looks of their own.
    """
    looks = 2 - np.log(np.maximum((likely + rare) / 2, 1 / pilot))
    return np.asarray(np.sqrt(2 * np.log(looks) + np.log(compared) / 2), dtype=np.float64)


def raised_rate(likely: FloatArray, rare: FloatArray, pilot: int, z: FloatArray | float) -> FloatArray:
    """Return an event's rate on the input where it is rarer, raised by ``z`` standard errors of the ratio of its two
    rates.

    ``likely``, ``rare``: rates of ``pilot`` trials on the input where the event is likelier, and on the other.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # Relative variance of the ratio, in units of that of the rare count; one more, because none seen is not none.
        spread = np.sqrt(np.maximum(1 + (rare + 1 / pilot) / likely - 2 * rare, 0.0))
        raised = _poisson_upper(rare * pilot, z * spread) / pilot
    return np.asarray(np.where(likely > 0, raised, rare), dtype=np.float64)


def cautious(likely: FloatArray, rare: FloatArray, pilot: int, compared: int, caution: float = 1.0) -> FloatArray:
    """Return the ``rare`` rate (k,), raised by ``caution`` times the ``selection_bias`` of the other arguments."""
    return raised_rate(likely, rare, pilot, caution * selection_bias(likely, rare, pilot, compared))


def expected_bound(
    likely: ArrayLike, rare: ArrayLike, plan: CountingPlan, *, fair_coins: bool, sides: ArrayLike = 1
) -> FloatArray:
    """Return the lower bound on epsilon that is expected from two counts whose ratio is at most ``e^epsilon``; this
    bound may be negative.

    ``likely``, ``rare``: the two rates, per trial of each input, of any broadcastable shapes. ``fair_coins``: whether
    coins choose the inputs of the counted trials (``guess_odds``); otherwise the rates are those of one event in
    equally many trials per input (``event_ratio``), whose counts vary less. ``sides``: how many inputs are guessed, for
    each of which delta is taken off the likely rate.
    """
    often, seldom = np.broadcast_arrays(np.asarray(likely, dtype=np.float64), np.asarray(rare, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = 1 + seldom / often - (0.0 if fair_coins else 2 * seldom)
        z = float(ndtri(1 - plan.alpha)) * np.sqrt(np.maximum(variance, 0.0)) * (1.0 if fair_coins else _LOSS)
        paid = often - plan.delta * np.asarray(sides)
        bound = np.log(paid * plan.trials) - np.log(_poisson_upper(seldom * plan.trials, z))
    # Nothing likely shows nothing; nor do rates of 0 and 0.
    return np.asarray(np.where(paid > 0, bound, -math.inf), dtype=np.float64)


def _poisson_upper(count: FloatArray, z: FloatArray) -> FloatArray:
    """An upper bound on the mean of a Poisson count at ``z`` normal deviations (Wilson and Hilferty 1931)."""
    more = count + 1
    return np.asarray(more * (1 - 1 / (9 * more) + z / (3 * np.sqrt(more))) ** 3, dtype=np.float64)


class EventGuesses(NamedTuple):
    """The numbers of outputs that a rule assigns to the second and to the first input."""

    second: int
    first: int


@dataclass(frozen=True, kw_only=True)
class GuessRule:
    """A rule for guesses: a score above ``high`` is a guess of the second input, a score of at most ``low`` is a guess
    of the first.

    ``high`` may be infinite, ``low`` minus infinity: then there are no such guesses. Raises ValueError unless
    ``low`` <= ``high``.
    """

    high: float
    low: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"low must be <= high, got {self.low} and {self.high}")

    def __str__(self) -> str:
        above, below = f"> {self.high:.6g}", f"<= {self.low:.6g}"
        return above if math.isinf(self.low) else below if math.isinf(self.high) else f"{above} or {below}"

    @property
    def threshold(self) -> float:
        """The finite threshold; if both are finite, the threshold for guesses of the second input."""
        return self.low if math.isinf(self.high) else self.high

    @property
    def sides(self) -> int:
        """The number of inputs (1 or 2) that the rule ever guesses."""
        return math.isfinite(self.high) + math.isfinite(self.low)

    def guesses(self, scores: FloatArray) -> EventGuesses:
        """Count the guesses for scores (n,)."""
        return EventGuesses(int(np.count_nonzero(scores > self.high)), int(np.count_nonzero(scores <= self.low)))


def best_rule(
    member: FloatArray,
    nonmember: FloatArray,
    plan: CountingPlan,
    caution: float = 1.0,
    compared: int = 1,
    *,
    both_sides: bool = False,
) -> tuple[GuessRule, float]:
    """Return the rule with the largest expected bound on epsilon at the delta of the plan, and that bound.

    ``member``: (n1,), ``nonmember``: (n0,) pilot scores of the second and of the first input; ``caution``: how many
    times the selection bias of a threshold, of ``compared`` scores, is subtracted; ``both_sides``: whether both
    thresholds are finite.
    """
    cuts, below_in, below_out = below_cuts(member, nonmember)
    under_in, under_out = below_in / len(member), below_out / len(nonmember)
    # One more at each end: nothing above plus infinity, nothing below minus infinity.
    right, right_low = np.r_[1 - under_in, 0.0], np.r_[0.0, under_out]
    wrong, wrong_low = np.r_[1 - under_out, 0.0], np.r_[0.0, under_in]
    pilot = min(len(member), len(nonmember))
    # Apart, because each of the two thresholds is the best of many by itself.
    wrong, wrong_low = (
        cautious(likely, rare, pilot, compared, caution) for likely, rare in ((right, wrong), (right_low, wrong_low))
    )
    highs, lows = np.r_[cuts, math.inf], np.r_[-math.inf, cuts]
    sides = np.isfinite(highs)[:, np.newaxis].astype(int) + np.isfinite(lows)
    likely, rare = right[:, np.newaxis] + right_low, wrong[:, np.newaxis] + wrong_low
    bounds = expected_bound(likely, rare, plan, fair_coins=True, sides=sides)
    bounds[highs[:, np.newaxis] < lows] = -math.inf
    if both_sides:
        bounds[-1], bounds[:, 0] = -math.inf, -math.inf
    high, low = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    return GuessRule(high=float(highs[high]), low=float(lows[low])), float(bounds[high, low])


@dataclass(frozen=True, kw_only=True)
class GuessCounts:
    """The numbers of guesses in runs whose input a fair coin chose, by guess and by true input.

    ``in_as_in``, ``in_as_out``: of ``n1`` runs on the second input, those guessed to be on the second and on the first;
    ``out_as_in``, ``out_as_out``: of ``n0`` runs on the first input likewise. In the others no guess was made.

    Raises ValueError unless all are whole numbers >= 0, n0 and n1 >= 1, and no more guesses than runs.
    """

    in_as_in: int
    in_as_out: int
    n1: int
    out_as_in: int
    out_as_out: int
    n0: int
    setting: Setting

    def __post_init__(self) -> None:
        for name in ("in_as_in", "in_as_out", "n1", "out_as_in", "out_as_out", "n0"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for side, n, both in (
            ("second", self.n1, (self.in_as_in, self.in_as_out)),
            ("first", self.n0, (self.out_as_in, self.out_as_out)),
        ):
            if n < 1 or min(both) < 0 or sum(both) > n:
                raise ValueError(
                    f"the number of guesses on the {side} input must be >= 0 and at most its number of runs n >= 1, "
                    f"got {both} of {n}"
                )

    @property
    def right(self) -> int:
        """How many guesses were right."""
        return self.in_as_in + self.out_as_out

    @property
    def wrong(self) -> int:
        """How many guesses were wrong."""
        return self.in_as_out + self.out_as_in

    def errors(self, threshold: float | None, alpha: float) -> ErrorCounts:
        """Return the error counts at the threshold for guesses of the second input. If only the first input is ever
        guessed, the threshold is that for guesses of the first input.

        Runs above it count as guesses of the second input, all others as guesses of the first.
        """
        above_out, above_in = self.out_as_in, self.in_as_in
        if above_out + above_in == 0:
            above_out, above_in = self.n0 - self.out_as_out, self.n1 - self.in_as_out
        return ErrorCounts(
            threshold=threshold,
            false_positives=above_out,
            false_negatives=self.n1 - above_in,
            n0=self.n0,
            n1=self.n1,
            alpha=alpha,
        )


def odds_low(right: int, wrong: int, alpha: float, *, delta: float = 0.0, runs: int = 0, sides: int = 2) -> float:
    """Return the largest epsilon that the given numbers of right and wrong guesses refute at ``delta`` and level
    ``alpha``; 0 if they refute none.

    ``runs``: with and without a guess, needed where delta > 0; ``sides``: how many of the two inputs are guessed.
    """
    made = right + wrong
    if made == 0:
        return 0.0
    paid, revealed = 0.0, 0.0
    if delta > 0:
        paid = _PAID * alpha
        least = 1 - float(upper_bound(runs - made, runs, paid))
        revealed = min(1.0, delta * sides / 2 / least) if least > 0 else 1.0
    mistaken = float(upper_bound(wrong, made, alpha - paid))
    odds = (1 - revealed) / mistaken - 1
    return math.log(odds) if odds > 1 else 0.0


def guess_odds(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: ThresholdPolicy | GuessRule,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from guesses about which of several independent runs had the
    canary.

    ``delta`` lies in [0, 1); the bound holds with probability 1 - ``alpha``, whatever the mechanism.

    Args:
        threshold: a split, whose part chooses for how high and how low scores a guess is made; or a rule that was fixed
            before; or one threshold, above which scores are guesses of members, and there are no others.
        epsilon: the claimed one, for the detectable epsilon.

    Raises ValueError for another policy, levels out of range, and trials that are not independent.
    """
    check_independent_trials(scores.setting, "guess_odds", delta, alpha)
    check_epsilon(epsilon)
    within, out, seed = scores.member, scores.nonmember, 0
    if isinstance(threshold, SplitThreshold):
        chosen, (within, out) = threshold.halves(within, out)
        plan = CountingPlan(trials=min(len(within), len(out)), delta=delta, alpha=alpha, curve=None)
        rule, seed = best_rule(*chosen, plan, caution=_CAUTION)[0], threshold.seed
    elif isinstance(threshold, GuessRule):
        rule = threshold
    elif isinstance(threshold, FixedThreshold):
        rule = GuessRule(high=float(threshold.threshold), low=-math.inf)
    else:
        raise ValueError(
            f"guess_odds needs one rule for guesses, fixed in advance or learned on split-off runs, got {threshold}"
        )
    guesses = rule.guesses(out), len(out), rule.guesses(within), len(within)
    # A zero may have a sign, which the digest would see.
    counts = by_coins(*guesses, scores.setting, seed=(seed, *digest((within + 0.0).tobytes() + (out + 0.0).tobytes())))
    measured = guess_odds_of_counts(
        counts,
        alpha=alpha * (1 - FAILS),
        delta=delta,
        sides=rule.sides,
        threshold=rule.threshold if math.isfinite(rule.threshold) else None,
        threshold_policy=str(threshold),
        # What a threshold detects that was chosen for other scores is not known.
        epsilon=None if isinstance(threshold, FixedThreshold) else epsilon,
        witness=f"{witness}; {counts.right} of {counts.right + counts.wrong} guesses were right".removeprefix("; "),
    )
    return replace(measured, alpha=alpha)


def by_coins(
    out: EventGuesses, n0: int, within: EventGuesses, n1: int, setting: Setting, *, seed: Sequence[int]
) -> GuessCounts:
    """Choose runs by fair coins among ``n0`` runs without and ``n1`` runs with the canary; return the guesses in the
    chosen runs.

    ``out``, ``within``: the guesses in all of them. ``seed`` must depend on what the runs drew, because the bound holds
    over coins that differ between audits. Coins that ask for more runs of an arm than there are, are thrown again.

    Raises ValueError for too few runs of an arm.
    """
    runs = coin_runs(n0, n1)
    if not runs:
        raise ValueError(f"guess_odds needs at least 11 counted runs in each arm, got {n0} and {n1}")
    rng, taken = np.random.default_rng(list(seed)), 0
    while not (0 < taken <= n1 and 0 < runs - taken <= n0):
        taken = int(rng.binomial(runs, 0.5))
    sides = []
    for guesses, n, size in ((within, n1, taken), (out, n0, runs - taken)):
        kinds = [guesses.second, guesses.first, n - guesses.second - guesses.first]
        sides.append(rng.multivariate_hypergeometric(kinds, size, method="marginals"))
    (in_as_in, in_as_out, _), (out_as_in, out_as_out, _) = (tuple(map(int, side)) for side in sides)
    return GuessCounts(
        in_as_in=in_as_in,
        in_as_out=in_as_out,
        n1=taken,
        out_as_in=out_as_in,
        out_as_out=out_as_out,
        n0=runs - taken,
        setting=setting,
    )


def guess_odds_of_counts(
    counts: GuessCounts,
    *,
    alpha: float,
    delta: float = 0.0,
    sides: int = 2,
    threshold: float | None = None,
    threshold_policy: str = "guesses",
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from counted guesses; the bound holds with probability 1 -
    ``alpha``.

    Assumes independent runs, inputs by independent fair coins, and guesses by a rule that was fixed before.
    ``sides``: how many of the two inputs it guesses. ``epsilon``: the claimed one, from which ``detectable`` is
    computed, by the number of guesses. Raises ValueError for levels out of range and for trials that are not
    independent.
    """
    check_independent_trials(counts.setting, "guess_odds", delta, alpha)
    runs = counts.n0 + counts.n1
    stated: dict[str, Any] = {"delta": delta, "runs": runs, "sides": sides}
    measured = measured_counts(
        counts.errors(threshold, alpha),
        delta=delta,
        estimator="guess_odds",
        assumption=INDEPENDENT_TRIALS,
        threshold_policy=threshold_policy,
        epsilon_low=odds_low(counts.right, counts.wrong, alpha, **stated),
        estimate=math.log(counts.right / counts.wrong) if counts.right and counts.wrong else None,
        ceiling=odds_low(runs, 0, alpha, **stated),
        witness=witness,
        setting=counts.setting,
    )
    found = None if epsilon is None else _detectable(counts, epsilon, alpha, delta, sides)
    return replace(measured, detectable=found)


def _detectable(counts: GuessCounts, claimed: float, alpha: float, delta: float, sides: int) -> float | None:
    """The smallest true epsilon that so many guesses refute with probability 0.9: of a Gaussian mechanism, at delta 0
    of one whose guesses are right with probability ``e^eps / (1 + e^eps)``. None where no errors would not refute it.
    """
    runs, made = counts.n0 + counts.n1, counts.right + counts.wrong

    def bound(right: int) -> float:
        return odds_low(right, made - right, alpha, delta=delta, runs=runs, sides=sides)

    if made == 0 or not bound(made) > claimed:
        return None
    if delta > 0:
        # Guesses of one input alone are as rare as both are in half as many runs.
        guesses = Guesses(counts.right, made, max(made, runs * sides // 2), counts.setting)
        return max(claimed, detectable_gaussian(guesses, bound, delta=delta, epsilon=claimed) or 0.0)
    wrong = int(crossing(lambda wrong: bound(made - int(wrong)) > claimed, high=float(made))[0])
    rate = float(bdtri(wrong, made, _POWER))
    return max(claimed, math.log((1 - rate) / rate))


def detectable_at(claimed: float, delta: float, alpha: float, runs: int, rate: float) -> float | None:
    """Return the smallest true epsilon that guesses in ``runs`` runs of each input refute with probability 0.9. A guess
    of either input is wrong with probability ``rate``; the mechanisms are those of ``minimum_detectable_epsilon``.
    Return None if no mu or epsilon up to 60 suffices.
    """
    coins = coin_runs(runs, runs)

    def missed(level: float) -> bool:
        often = min(1 - rate, float(ndtr(level + ndtri(rate))) if delta > 0 else math.exp(level) * rate)
        made = int(coins * (often + rate))

        def refuted(wrong: float) -> bool:
            return odds_low(made - int(wrong), int(wrong), alpha, delta=delta, runs=coins) > claimed

        if not refuted(0):
            return True
        most = int(crossing(refuted, high=float(made), absolute=0.5)[0])
        return bool(bdtr(most, made, rate / (often + rate)) < _POWER)

    low = mu_from_epsilon(claimed, delta) if delta > 0 else claimed
    if low >= _REACH or missed(_REACH):
        return None
    found = crossing(missed, low=low, high=_REACH, relative=1e-3)[1]
    return epsilon_from_mu(found, delta) if delta > 0 else found


@lru_cache(maxsize=64)
def coin_runs(n0: int, n1: int) -> int:
    """Return the number of runs that fair coins may choose from ``n0`` runs of one input and ``n1`` of the other: the
    largest number for which both inputs have enough runs in all but one of 1,000 audits; 0 if there is none.
    """

    def enough(runs: int) -> bool:
        return sum(float(bdtrc(min(n, runs), runs, 0.5)) for n in (n0, n1)) <= FAILS / 2

    low, high = 0, n0 + n1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if enough(middle) else (low, middle - 1)
    return low if 2 * 0.5**low <= FAILS / 2 else 0


def runs_for_coins(counted: int) -> int:
    """Return the number of runs of each input of which fair coins leave about ``counted`` of each or more, in 98 of 100
    audits.
    """

    def enough(runs: int) -> bool:
        chosen = coin_runs(runs, runs)
        return chosen / 2 - 1.2 * math.sqrt(chosen) >= counted

    return fewest(enough, 2 * counted + 100) or 2 * counted + 100


def digest(content: bytes) -> tuple[int, ...]:
    """Return four whole numbers that are determined by all of the content."""
    return tuple(np.frombuffer(hashlib.sha256(content).digest()[:16], dtype=np.uint32).tolist())


def fits_coins(*, curve: Curve | None, trials: int) -> bool:
    """Return whether a claim with this ``curve`` should be tested by guesses, given ``trials`` runs per input on
    average.

    A stated curve is tested by two rates; and of few runs, coins might leave an input none.
    """
    return curve is None and trials >= _FEWEST
