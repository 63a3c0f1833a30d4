"""Say in plain words what those attacks achieved that no privacy claim covers."""

import math
from collections.abc import Sequence
from itertools import chain

from ...audit.wording import counted
from ..reading.claims import covers
from ..reading.pooling import Pooled, gathered
from ..reading.run_folder import RunFolder, once_per_run
from . import numerals
from .pooled_rows import AttackRow, pooled_attacks, primary_results
from .reconstruction import SUCCESS, Success, priors, rebuilt_counts


def uncovered_attacks(folder: RunFolder, defense: str) -> list[AttackRow]:
    """Return the primary result of each attack on a defense whose adversary no claim of the defense covers."""
    claims = [one.claim for one in folder.claims if one.defense == defense]
    return [
        one
        for one in primary_results(folder).get(defense, [])
        if not one.null and not any(covers(claim.observer, one.observer) for claim in claims)
    ]


def outside_attacks(folder: RunFolder, defense: str) -> dict[str, list[AttackRow]]:
    """Return the primary results of attacks on a defense that no claim covers, although a claim covers the attack's
    adversary; they are grouped by the reason in words.
    """
    claims = [one for one in folder.claims if one.defense == defense]
    federations = {one.federation for one in claims}
    return gathered(
        (
            "for another unit, relation or number of rounds than the claim's"
            if result.federation in federations
            else f"on {result.federation}, for which no claim is stated",
            result,
        )
        for result in primary_results(folder).get(defense, [])
        if result.beyond and any(covers(one.claim.observer, result.observer) for one in claims)
    )


def value_words(one: AttackRow) -> str:
    """Format the pooled value of an attack with its metric, such as ``PSNR 38.8 dB``."""
    metric = numerals.metric(one.metric)
    value = numerals.metric_value(one.metric, one.pooled.value) if one.pooled else numerals.NOTHING
    return f"{metric.name} {value} {metric.unit}".rstrip()


_CHANCE = {
    "auc": 0.5,
    "label_over_chance": 0.0,
    "source_advantage": 0.0,
    "attribute_over_imputation": 0.0,
    "property_gain": 0.0,
    "token_over_chance": 0.0,
    "exposure": 1 / math.log(2),
}
_DID = {
    "psnr": "rebuilt images",
    "auc": "recognised data that were trained on",
    "label_accuracy": "named labels",
    "label_over_chance": "named labels",
    "source_advantage": "named who holds a record",
    "property_gain": "inferred the share of a group",
    "attribute_over_imputation": "inferred a sensitive column of records",
    "column_error": "reconstructed columns",
    "token_over_chance": "recovered tokens",
    "exposure": "found secrets that the model memorised",
}
"""What an attack did that succeeded, by its first metric (``numerals.ATTACK_HEADLINES``)."""
_LOWER = "lower_leaks"
"""The direction of errors, which are smaller where an attack learns more."""
_OTHER = "did better than guessing"


def did_words(folder: RunFolder, one: AttackRow) -> str:
    """Return in words what an attack achieved, with counts if there are any, as far as its confidence interval and the
    success of guessing allow such a statement. For an attack that was no better than guessing, return its name and
    result.
    """
    about, better = f"{one.attack} in federation {one.federation}", better_than_guessing(folder, one)
    value, guess = _value(folder, one), _guess_words(folder, one)
    compared = f"{value}; guessing: {guess}" if guess else value
    if better is None:
        return f"{about} ({compared}; {_unknown(one)})"
    if better:
        return f"{about} {_DID[one.metric] if succeeded(folder, one) else _OTHER} ({compared})"
    return f"{about} ({value}{_interval(folder, one)}; guessing: {guess})"


def better_than_guessing(folder: RunFolder, one: AttackRow) -> bool | None:
    """Return whether the whole confidence interval of an attack is better than guessing; None if there is no interval
    or no null attack to compare with. The interval holds jointly for all attacks outside the claims of the run. For an
    attack that reconstructs images, the interval of the share of reconstructed images also counts.
    """
    rebuilt, prior = rebuilt_images(folder, one), priors(folder).get(one.federation)
    if rebuilt is not None and prior is not None and rebuilt.low > prior:
        return True
    guess, pooled = guess_of(folder, one), _joint(folder, one)
    if guess is None or pooled is None or pooled.low is None or pooled.high is None:
        return None
    return pooled.high < guess if one.direction == _LOWER else pooled.low > guess


@once_per_run
def _compared(folder: RunFolder) -> int:
    """The number of attacks outside the claims under test: one of them may seem to succeed by chance."""
    defenses = {one.defense for one in folder.claims if not one.control}
    outside = (chain.from_iterable(outside_attacks(folder, defense).values()) for defense in defenses)
    return max(
        1, sum(len([*uncovered_attacks(folder, one), *rows]) for one, rows in zip(defenses, outside, strict=True))
    )


def _joint(folder: RunFolder, one: AttackRow) -> Pooled | None:
    return one.pooled and one.pooled.joint(_compared(folder))


def beats_guessing(folder: RunFolder, one: AttackRow) -> bool:
    """Return whether the value of an attack is better than the value of guessing, whatever the attack's confidence
    interval.
    """
    guess = guess_of(folder, one)
    if guess is None or one.pooled is None:
        return False
    return one.pooled.value < guess if one.direction == _LOWER else one.pooled.value > guess


def succeeded(folder: RunFolder, one: AttackRow) -> bool:
    """Return whether an attack was better than guessing; an attack that reconstructs images must also have
    reconstructed one.
    """
    rebuilt = rebuilt_images(folder, one)
    return better_than_guessing(folder, one) is True and (rebuilt is None or rebuilt.count > 0)


@once_per_run
def _successes(folder: RunFolder) -> dict[str, list[AttackRow]]:
    found = {}
    for defense in {one.defense for one in folder.claims}:
        outside = chain.from_iterable(outside_attacks(folder, defense).values())
        found[defense] = [row for row in (*uncovered_attacks(folder, defense), *outside) if succeeded(folder, row)]
    return found


def successes(folder: RunFolder, defense: str) -> list[AttackRow]:
    """Return the successful attacks on a defense that none of the defense's claims covers."""
    return _successes(folder).get(defense, [])


def successes_words(folder: RunFolder, defenses: Sequence[str]) -> str:
    """Return in words what attacks outside the claims of these defenses achieved, with the defenses and federations;
    empty if none succeeded.
    """
    named = [defense for defense in dict.fromkeys(defenses) if successes(folder, defense)]
    done = [row for defense in named for row in successes(folder, defense)]
    if not named:
        return ""
    *more, last = dict.fromkeys(_DID[metric] for metric in sorted({row.metric for row in done}, key=list(_DID).index))
    places = sorted({row.federation for row in done})
    where = f"{', '.join(named)}; in {listed('federation', places)}"
    return f"outside the claims, attacks {' and '.join(filter(None, (', '.join(more), last)))} ({where})"


def listed(kind: str, names: Sequence[str]) -> str:
    """Format the names that a suite gives to its parts of one kind, such as ``the federations “main” and “small”``."""
    quoted = [f"“{name}”" for name in names]
    *more, last = quoted
    return f"the {kind}{'s' * bool(more)} {' and '.join(filter(None, (', '.join(more), last)))}"


def revealed_words(folder: RunFolder) -> str:
    """Return in words how many attacks of a run without claims did better than guessing, and what each of them reached,
    by its first metric and judged by itself.
    """
    rows = {one.attack: one for metric in _DID for one in pooled_attacks(folder) if one.metric == metric}
    rows = {name: one for name, one in rows.items() if not one.null}
    won = [one for one in rows.values() if succeeded(folder, one)]
    said = f"{len(won)} of {counted(len(rows), 'attack')} on recorded messages did better than guessing"
    return "; ".join([said, *([", ".join(short_words(folder, one) for one in won)] if won else [])])


def short_words(folder: RunFolder, one: AttackRow) -> str:
    """Return an attack's name with its result, such as ``inversion: 24 of 24 images``."""
    return f"{one.attack}: {_value(folder, one)}"


def _value(folder: RunFolder, one: AttackRow) -> str:
    """What was reached, with a count where there is one."""
    rebuilt = rebuilt_images(folder, one)
    if rebuilt is not None:
        return f"{rebuilt.count} of {rebuilt.n} images to a PSNR of {SUCCESS:.0f} dB or more"
    if one.count is not None:
        return str(one.count)
    if one.metric == "auc" and one.pooled:
        return f"right in {percent(one.pooled.value)} of pairs"
    return value_words(one)


def _guess_words(folder: RunFolder, one: AttackRow) -> str:
    """What guessing reaches, in the same form; empty where that is not known."""
    if one.metric == "auc":
        return percent(_CHANCE["auc"])
    if rebuilt_images(folder, one) is not None:
        prior = priors(folder).get(one.federation)
        return "" if prior is None else f"at most {percent(numerals.rounded(prior, 3, math.ceil))} of images"
    guess = guess_of(folder, one)
    if guess is not None and one.count is not None:
        return percent(guess)
    return "" if guess is None else numerals.metric_value(one.metric, guess)


def guess_of(folder: RunFolder, one: AttackRow) -> float | None:
    """The value that an attack's metric has without any observation. This is a constant for some metrics, the chance
    that the rows state, or the result of the federation's best null attack (which ignores what it observes).
    """
    if one.metric in _CHANCE or one.chance is not None:
        return _CHANCE.get(one.metric, one.chance)
    place = one.federation, one.metric
    nulls = (row for row in pooled_attacks(folder) if row.null and (row.federation, row.metric) == place)
    shown = [row.pooled.value for row in nulls if row.pooled]
    return (min if one.direction == _LOWER else max)(shown, default=None)


def rebuilt_images(folder: RunFolder, one: AttackRow) -> Success | None:
    """Return how many images an attack reconstructed; None if its metric is not PSNR."""
    if one.metric != "psnr":
        return None
    return rebuilt_counts(folder).get((one.federation, one.defense, one.attack, one.observer))


def _interval(folder: RunFolder, one: AttackRow) -> str:
    """The interval with what it is over, after a comma."""
    joint, of = _joint(folder, one), _compared(folder)
    if joint is None or joint.low is None or joint.high is None:
        return ""
    ends = (joint.low, joint.high)
    form = percent if one.metric == "auc" or one.count else lambda end: numerals.metric_value(one.metric, end)
    value = f"; {value_words(one)}" if one.metric == "psnr" else ""
    several = f", joint for {of} attacks" if of > 1 else ""
    return f"{value}, 95 % interval over {joint.over}{several}: {' to '.join(map(form, ends))}"


def _unknown(one: AttackRow) -> str:
    """Why an attack is not compared with guessing."""
    if one.pooled is None or one.pooled.low is None:
        method = one.pooled.method if one.pooled else ""
        return f"not compared with guessing: {method or 'no interval'}"
    return "not compared with guessing: the run has no null attack for it"


def percent(share: float) -> str:
    """Format a share in per cent with one decimal."""
    return f"{100 * share:.1f} %".replace("-", "−")
