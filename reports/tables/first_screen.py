"""What the first screen of a page draws about one claim: a ruler, who sees what, people, attacks, and use."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...audit.claim import Claim
from ...audit.finding import Finding
from ...audit.observer import Observer
from ...audit.wording import plain
from ..reading.claims import ClaimRow, adversaries, covered_elsewhere, same_subject
from ..reading.pooling import Pooled
from ..reading.run_folder import RunFolder
from . import numerals
from .answers import PEOPLE, ClaimAnswer, allowed_of_thousand, most_found
from .covered import beats_guessing, guess_of, successes
from .pooled_rows import primary_results, undefended
from .printed import observer_words

WIDTH = 320
"""Width of a drawing, in its own units."""
_NAMES = {
    "final_model": "public",
    "global_models": "other clients",
    "aggregate": "server, sums only",
    "shuffled": "shuffler",
    "uploads": "server, each update",
    "answers": "student",
    "passive_party": "party without labels",
    "active_party": "party with labels",
}


class Meaning(StrEnum):
    """The meaning of a mark on the ruler of epsilon."""

    PROVED = "proved"
    CLAIM = "claim"
    SEEN = "seen"
    MOST = "most"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A value on the axis of a ruler: ``at`` in [0, ``WIDTH``], and what it means in ``words``."""

    kind: Meaning
    at: float
    words: str


@dataclass(frozen=True, kw_only=True)
class Ruler:
    """The marks of a claim on one axis, of which ``axis`` names the quantity; ``broken``: whether the proved value lies
    beyond the claim.
    """

    axis: str
    marks: tuple[Mark, ...]
    broken: bool

    @property
    def sentence(self) -> str:
        """The drawing in words."""
        return f"Axis of {self.axis}: {'; '.join(mark.words for mark in self.marks)}."


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """An adversary and whether the claim covers it; ``status``: covered, claimed (covered, not decided), broken,
    in-doubt (covered by a claim that is broken), attacked or open (both not covered).
    """

    name: str
    status: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A claim and what one test of it showed: a lower bound on epsilon, the minimum detectable epsilon, the largest
    epsilon that it could have certified, and upper bounds on error rates; None where there is none.
    """

    claim: Claim
    verdict: str
    epsilon_low: float | None = None
    detectable: float | None = None
    ceiling: float | None = None
    fpr_high: float | None = None
    fnr_high: float | None = None

    @classmethod
    def of(cls, claim: Claim, finding: Finding) -> "Tested":
        """Return what a finding about this claim shows."""
        measured = finding.measurement
        if measured is None:
            return cls(claim=claim, verdict=finding.verdict.value)
        numbers = ("epsilon_low", "detectable", "ceiling", "fpr_high", "fnr_high")
        return cls(claim=claim, verdict=finding.verdict.value, **{name: getattr(measured, name) for name in numbers})


def ruler(row: ClaimRow | Tested) -> Ruler:
    """Return the ruler of a claim: of epsilon, or of the share of recognised runs where that refuted it."""
    claim, low = row.claim, row.epsilon_low
    if row.verdict == "REFUTED" and (low is None or low <= claim.epsilon) and row.fpr_high is not None:
        allowed, found = most_found(claim, row.fpr_high), 1 - (row.fnr_high or 0.0)
        if found > allowed:
            return _recognised(allowed, found, row.fpr_high, str(claim.unit))
    marks = {
        Meaning.PROVED: (low, f"proved: at least {numerals.lower_bound(low)}"),
        Meaning.CLAIM: (claim.epsilon, f"claimed: {plain(claim.epsilon)}"),
        Meaning.SEEN: (
            row.detectable,
            f"a true ε of {numerals.epsilon(row.detectable)} or more is found in 9 of 10 tests",
        ),
        Meaning.MOST: (row.ceiling, f"the most that this number of runs can prove: {numerals.epsilon(row.ceiling)}"),
    }
    given = [value for value, _ in marks.values() if value is not None and math.isfinite(value)]
    # Far beyond the claim, how far is of no interest: such marks stand at the right end.
    right = min(1.15 * max(given), 3 * max(claim.epsilon, low or 0.0))
    shown = [
        Mark(kind=kind, at=WIDTH * min(value, right) / right, words=words)
        for kind, (value, words) in marks.items()
        if value is not None and value > 0
    ]
    return Ruler(axis="ε", marks=tuple(shown), broken=low is not None and low > claim.epsilon)


def _recognised(allowed: float, found: float, alarms: float, unit: str) -> Ruler:
    """The axis of a claim that its trade-off curve refuted."""
    least, most = numerals.kept_apart(found, allowed, 0)
    marks = (
        Mark(kind=Meaning.PROVED, at=WIDTH * found, words=f"recognised: at least {least:.7g} of 100"),
        Mark(kind=Meaning.CLAIM, at=WIDTH * allowed, words=f"the claim allows: {most:.7g} of 100"),
    )
    axis = f"runs with the {unit}, recognised at {math.ceil(100 * alarms)} false alarms in 100"
    return Ruler(axis=axis, marks=marks, broken=True)


def watchers(answer: ClaimAnswer) -> list[Watcher]:
    """Return the adversaries of a claim in a run, with what its other claims cover and its attacks did."""
    others = same_subject(answer.folder, answer.row)
    attacked = {one.observer for one in successes(answer.folder, answer.row.defense)}
    return watchers_of(answer.row, covered_elsewhere(answer.row.claim, others), attacked)


def watchers_of(
    row: ClaimRow | Tested, elsewhere: Collection[Observer] = (), attacked: Collection[str] = ()
) -> list[Watcher]:
    """Return the adversaries of a claim's kind of federation, from the weakest to the strongest; ``elsewhere``: those
    that another claim covers, ``attacked``: those of attacks that succeeded.
    """
    claim = row.claim

    def status(observer: Observer) -> tuple[str, str]:
        if claim.observer.covers(observer):
            if row.verdict == "NOT_REFUTED":
                return "covered", "the claim covers it"
            if row.verdict != "REFUTED":
                return "claimed", "the claim covers it, but the test decided nothing"
            own = claim.observer.name == observer.name
            return ("broken", "the claim is broken") if own else ("in-doubt", "covered by a claim that is broken")
        if observer in elsewhere:
            return "covered", "another claim covers it"
        return (
            ("attacked", "not covered, and an attack succeeded")
            if str(observer) in attacked
            else ("open", "not covered")
        )

    return [
        Watcher(name=_NAMES[one.name], status=found, words=words)
        for one in adversaries(claim)
        for found, words in [status(one)]
    ]


@dataclass(frozen=True, kw_only=True)
class OfThousand:
    """Of 1,000 people, how many an attacker with one false alarm in a hundred finds: by guessing, at most under the
    claim, and by the best attack of the run, None where it was not measured at so few false alarms; ``broken``: whether
    the claim was refuted.
    """

    guessed: int
    allowed: int
    found: int | None
    broken: bool

    @property
    def words(self) -> list[tuple[str, str]]:
        """The numbers in words, each with what it stands for."""
        most = f"{self.allowed:,}"
        allowed = f"the claim's limit of {most} does not hold" if self.broken else f"at most {most} if the claim holds"
        said = [("guessed", f"by guessing {self.guessed}"), ("allowed", allowed)]
        return said if self.found is None else [*said, ("found", f"by the best attack here {self.found:,}")]


def people(row: ClaimRow | Tested, found: int | None = None) -> OfThousand:
    """Return what a claim means for people; ``found``: how many of 1,000 the best attack found."""
    allowed, broken = allowed_of_thousand(row.claim), row.verdict == "REFUTED"
    return OfThousand(guessed=PEOPLE // 100, allowed=allowed, found=found, broken=broken)


@dataclass(frozen=True, kw_only=True)
class ValueBar:
    """A value as a bar: its name, the value in words, and the bar's length and its interval's ends in [0, 1]."""

    name: str
    value: str
    length: float
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, name: str, metric: str, value: float, pooled: Pooled | None, most: float = 1.0) -> "ValueBar":
        """Return the bar of a value with its interval, where it has one, on an axis from 0 to ``most``."""

        def at(one: float) -> float:
            return min(max(one / most, 0.0), 1.0)

        ends = None
        if pooled is not None and pooled.low is not None and pooled.high is not None:
            ends = at(pooled.low), at(pooled.high)
        return cls(name=name, value=numerals.metric_value(metric, value), length=at(value), ends=ends)


def use(answer: ClaimAnswer) -> list[ValueBar]:
    """Return how good the model is under the defense and without one."""
    names = (answer.row.defense, "without a defense")
    return [
        ValueBar.of(name, one.metric, one.pooled.value, one.pooled)
        for name, one in zip(names, answer.utility, strict=True)
        if one is not None and one.pooled is not None
    ]


def reached(folder: RunFolder, defense: str) -> tuple[str, list[ValueBar]] | None:
    """Return what the attack that learns most without a defense reaches, where it rebuilds no images: its name, metric
    and adversary in words, and the values without a defense, with it, and of guessing; None without one.
    """
    results = primary_results(folder)
    own = {(row.federation, row.attack, row.metric): row for row in results.get(defense, [])}
    tried = [
        (bare, own[key])
        for bare in results.get(undefended(results) or "", [])
        if (key := (bare.federation, bare.attack, bare.metric)) in own and bare.metric != "psnr"
        if not bare.null and beats_guessing(folder, bare)
    ]
    if not tried:
        return None
    bare, other = min(tried, key=lambda pair: numerals.ATTACK_HEADLINES.index(pair[0].metric))
    pooled, guess = (bare.pooled, other.pooled), guess_of(folder, bare)
    values = [*(None if one is None else one.value for one in pooled), guess]
    most = max([1.0, *(value for value in values if value is not None)])
    shown = zip(("without a defense", "with it", "guessing"), values, (*pooled, None), strict=True)
    who = f"{observer_words(bare.observer)}, by {bare.attack} on {bare.federation}; {bare.words}"
    return who, [ValueBar.of(name, bare.metric, value, own, most) for name, value, own in shown if value is not None]


def use_title(answer: ClaimAnswer) -> str:
    """Return the name of the metric of ``use``; empty where there is none."""
    own, _ = answer.utility
    return numerals.metric(own.metric).label if own is not None else ""


def band(answered: Sequence[ClaimAnswer], *, finished: bool, attacked: bool = False) -> tuple[str, str]:
    """Return the sign of a run and its kind: ``broken``, ``open`` (not decided, weak or unfinished), ``mixed`` (no
    violation, but attacks outside the claims succeeded) or ``fine``.
    """
    if any(one.verdict == "REFUTED" for one in answered):
        return "✕", "broken"
    fine = all(one.verdict == "NOT_REFUTED" and not one.weak and not one.row.failed_checks for one in answered)
    if not (finished and answered and fine):
        return "?", "open"
    return ("!", "mixed") if attacked else ("✓", "fine")
