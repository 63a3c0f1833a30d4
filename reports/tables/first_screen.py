"""Compute what the first screen of a page draws about one privacy claim: a ruler of epsilon, what each adversary sees,
the meaning for people, attacks, and the model's quality.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...audit.claim import Claim
from ...audit.estimators.event_ratio import refuted_point
from ...audit.finding import Finding, detected_by_checks
from ...audit.observer import Observer
from ...audit.wording import plain
from ...suites.results.record import Record
from ..reading.claims import ClaimRow, adversaries, covered_elsewhere, same_subject
from ..reading.pooling import Pooled, gathered
from ..reading.run_folder import RunFolder
from . import numerals
from .answers import PEOPLE, SIGNS, ClaimAnswer, Recognised, allowed_by, allowed_of_thousand
from .covered import beats_guessing, guess_of, successes
from .pooled_rows import primary_results, undefended
from .printed import observer_words

WIDTH = 320
"""Width of a drawing, in its own units."""
_SEES = {
    "final_model": ("public", "the final model"),
    "global_models": ("other clients", "the model of every round"),
    "aggregate": ("server", "sums of updates only"),
    "shuffled": ("server", "shuffled updates"),
    "uploads": ("server", "each client's update"),
    "answers": ("student", "the released answers"),
    "passive_party": ("party without labels", "gradients sent to it"),
    "active_party": ("party with labels", "embeddings sent to it"),
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
    """The marks of one claim on an axis. ``axis`` names the quantity, which is 0 at the left end, and ``end`` labels
    the right end; ``broken``: whether the value that the audit proved lies beyond the claim.
    """

    axis: str
    end: str
    marks: tuple[Mark, ...]
    broken: bool

    @property
    def sentence(self) -> str:
        """A sentence that describes the drawing."""
        return f"Axis of {self.axis}: {'; '.join(mark.words for mark in self.marks)}."


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """An adversary, a description of what it ``sees``, and a ``status`` that says whether the claim is about this
    adversary and what was found, one of ``LABELS``.
    """

    name: str
    sees: str
    status: str


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A claim and the results of one test of it: a lower bound on epsilon, the minimum detectable epsilon, the largest
    certifiable epsilon, and bounds on both error rates. A result that does not exist is None. ``by_checks``: whether
    checks of the code, and not runs, determine the minimum detectable epsilon.
    """

    claim: Claim
    verdict: str
    epsilon_low: float | None = None
    detectable: float | None = None
    ceiling: float | None = None
    rates: tuple[float | None, float | None] = (None, None)
    failed_checks: tuple[Record, ...] = ()
    by_checks: bool = False

    @classmethod
    def of(cls, claim: Claim, finding: Finding) -> "Tested":
        """Build the test results from a finding about this claim."""
        measured = finding.measurement
        if measured is None:
            return cls(claim=claim, verdict=finding.verdict.value)
        rates = refuted_point(measured) or (measured.fpr_high, measured.fnr_high)
        bounds: dict[str, Any] = {name: getattr(measured, name) for name in ("epsilon_low", "detectable", "ceiling")}
        by_checks = detected_by_checks(finding.reason, measured.detectable)
        return cls(claim=claim, verdict=finding.verdict.value, rates=rates, by_checks=by_checks, **bounds)


def ruler(row: ClaimRow | Tested, *, missed: bool = False, undecided: bool = False) -> Ruler:
    """Return the ruler of a claim: an axis of epsilon, or of the share of recognised runs if this share refuted the
    claim. ``missed``: whether runs and checks missed a fault that was planted to test the run; the ruler then does not
    show what they would find. ``undecided``: whether nothing is decided about the claim, whatever could be found.
    """
    claim, low = row.claim, row.epsilon_low
    proved = f"proved: the true ε is at least {numerals.lower_bound(low)}"
    broken = row.verdict == "REFUTED"
    if broken and (low is None or low <= claim.epsilon):
        seen = max((one.value or 0.0 for one in row.failed_checks if one.unit == "epsilon"), default=0.0)
        if seen > claim.epsilon:
            low, proved = seen, f"a failed check gives ε = {numerals.epsilon(seen)}"
    if broken and (low is None or low <= claim.epsilon):
        # A bound below the claim would look like agreement with it.
        low, at_rate = None, Recognised.beyond(claim, *row.rates)
        if at_rate is not None:
            return _recognised(at_rate, str(claim.unit))
    other = "; another test than a bound on ε refutes it" if broken and low is None else ""
    marks: dict[Meaning, tuple[float | None, str]] = {
        Meaning.PROVED: (low, proved),
        Meaning.CLAIM: (claim.epsilon, f"claimed: ε is at most {plain(claim.epsilon)}{other}"),
    }
    if not broken:  # What could have been found is of no interest where a violation was.
        found, most = numerals.epsilon(row.detectable), numerals.epsilon(row.ceiling)
        how = "checks of the code, and not the runs," if row.by_checks else "the runs"
        words = f"too little noise (a true ε of {found} or more): {how} find it in 9 of 10 tests"
        words += "; this claim is not decided all the same" if undecided else ""
        marks[Meaning.SEEN] = (None if missed else row.detectable, words)
        marks[Meaning.MOST] = (row.ceiling, f"the most that this number of runs can prove: {most}")
    given = [value for value, _ in marks.values() if value is not None and math.isfinite(value)]
    # Far beyond the claim, how far is of no interest: such marks stand at the right end.
    right = min(1.15 * max(given), 3 * max(claim.epsilon, low or 0.0))
    shown = [
        Mark(kind=kind, at=WIDTH * min(value, right) / right, words=words)
        for kind, (value, words) in marks.items()
        if value is not None and value > 0
    ]
    return Ruler(axis="ε", end="ε", marks=tuple(shown), broken=broken)


def _recognised(one: Recognised, unit: str) -> Ruler:
    """The axis of a claim that its trade-off curve refuted."""
    found, allowed, alarms = one.words
    marks = (
        Mark(kind=Meaning.PROVED, at=WIDTH * one.found, words=f"recognised: at least {found}"),
        Mark(kind=Meaning.CLAIM, at=WIDTH * one.allowed, words=f"the claim allows: at most {allowed}"),
    )
    axis = f"runs {one.arm} the {unit} that are recognised, at {alarms} false alarms"
    return Ruler(axis=axis, end="all", marks=marks, broken=True)


LABELS = {
    "covered": "✓ no violation found",
    "broken": "✕ violated",
    "in-doubt": "? not decided",
    "claimed": "? not decided",
    "attacked": "! attacked",
    "elsewhere": "– another claim",
    "open": "– not covered",
}
"""The sign and the words at an adversary; a sign has the meaning that it has on the band."""
MEANS = {
    "covered": "No violation found: the claim limits what such an adversary learns about one {}; attacks within this "
    "limit may succeed.",
    "in-doubt": "Not decided: the claim is violated for an adversary that sees more.",
    "claimed": "Not decided: the claim covers this adversary, and the test decides nothing.",
    "attacked": "Attacked: no claim covers this adversary, and an attack succeeded.",
    "elsewhere": "Another claim: see what was found about the other claim of this defense.",
    "open": "Not covered: nothing is promised.",
}
"""What the words at an adversary mean; with the unit of the claim."""


def watchers(answer: ClaimAnswer) -> list[Watcher]:
    """Return the adversaries of a claim in a run, with what its other claims cover and what its attacks achieved."""
    others = same_subject(answer.folder, answer.row)
    attacked = {one.observer for one in successes(answer.folder, answer.row.defense)}
    undecided = bool(answer.weak or answer.incomplete)
    return watchers_of(answer.row, covered_elsewhere(answer.row.claim, others), attacked, undecided=undecided)


def watchers_of(
    row: ClaimRow | Tested,
    elsewhere: Collection[Observer] = (),
    attacked: Collection[str] = (),
    *,
    undecided: bool = False,
) -> list[Watcher]:
    """Return the adversaries in the claim's kind of federation, from the weakest to the strongest. ``elsewhere``:
    adversaries that another claim covers; ``attacked``: adversaries whose attacks succeeded; ``undecided``: whether a
    test without a violation decides nothing, because it is weak or its run is incomplete.
    """
    claim = row.claim

    def status(observer: Observer) -> str:
        if claim.observer.covers(observer):
            if row.verdict != "REFUTED":
                return "covered" if row.verdict == "NOT_REFUTED" and not undecided else "claimed"
            return "broken" if claim.observer.name == observer.name else "in-doubt"
        if observer in elsewhere:
            return "elsewhere"
        return "attacked" if str(observer) in attacked else "open"

    return [Watcher(name=_SEES[one.name][0], sees=_SEES[one.name][1], status=status(one)) for one in adversaries(claim)]


def by_status(seen: Sequence[Watcher]) -> dict[str, str]:
    """Return for each status, in the order of ``seen``, its adversaries with what they see, in one phrase."""
    found = gathered((one.status, one) for one in seen)
    named = {status: gathered((one.name, one.sees) for one in own) for status, own in found.items()}
    return {
        status: "; ".join(f"{name}: {', '.join(sees)}" for name, sees in own.items()) for status, own in named.items()
    }


@dataclass(frozen=True, kw_only=True)
class OfThousand:
    """How many people, out of 1,000, an attacker finds with one false alarm in a hundred. ``guessed``: by guessing;
    ``allowed``: at most under the claim, None without a claim, and ``by``: what this number follows from; ``found``: by
    the best attack of the run, None if so low a false-alarm rate was not measured. ``broken``: whether the claim was
    refuted.
    """

    guessed: int
    allowed: int | None = None
    by: str = ""
    found: int | None = None
    broken: bool = False

    @property
    def words(self) -> list[tuple[str, str]]:
        """The numbers in words, each with its meaning."""
        said = [("guessed", f"by guessing {self.guessed}")]
        if self.allowed is not None:
            held = (
                "the claim's limit of {:,} does not hold ({})"
                if self.broken
                else "at most {:,} if the claim holds ({})"
            )
            said.append(("allowed", held.format(self.allowed, self.by)))
        return said if self.found is None else [*said, ("found", f"by the best attack here {self.found:,}")]


def people(row: ClaimRow | Tested | None, found: int | None = None) -> OfThousand:
    """Return what a claim means for people; pass None if there is no claim. ``found``: the number of people, out of
    1,000, that the best attack found.
    """
    if row is None:
        return OfThousand(guessed=PEOPLE // 100, found=found)
    return OfThousand(
        guessed=PEOPLE // 100,
        allowed=allowed_of_thousand(row.claim),
        by=allowed_by(row.claim),
        found=found,
        broken=row.verdict == "REFUTED",
    )


@dataclass(frozen=True, kw_only=True)
class ValueBar:
    """A value drawn as a bar: its name, the value in words, the length of the bar, and the ends of its confidence
    interval in [0, 1]. ``over`` names what the interval is over; empty without an interval.
    """

    name: str
    value: str
    length: float
    ends: tuple[float, float] | None = None
    over: str = ""

    @classmethod
    def of(
        cls, name: str, metric: str, value: float, pooled: Pooled | None, axis: tuple[float, float] = (0.0, 1.0)
    ) -> "ValueBar":
        """Return the bar of a value, with its confidence interval if it has one, on an ``axis`` from one number to
        another.
        """

        def at(one: float) -> float:
            return min(max((one - axis[0]) / (axis[1] - axis[0]), 0.0), 1.0)

        shown = numerals.metric_value(metric, value)
        if pooled is None or pooled.low is None or pooled.high is None:
            return cls(name=name, value=shown, length=at(value))
        return cls(name=name, value=shown, length=at(value), ends=(at(pooled.low), at(pooled.high)), over=pooled.over)


def interval_words(bars: Sequence[ValueBar]) -> str:
    """Return a sentence that explains the interval lines on bars; empty if no bar has one."""
    over = dict.fromkeys(bar.over for bar in bars if bar.ends)
    return f"Line on a bar: 95 % interval over {' or '.join(filter(None, over)) or 'repetitions'}." if over else ""


def use(answer: ClaimAnswer) -> list[ValueBar]:
    """Return bars that show how good the model is under the defense and without a defense; in a run that trains no
    model without a defense, the second bar shows a guess.
    """
    names, (own, without) = (answer.row.defense, "without a defense"), answer.utility
    bars = [
        ValueBar.of(name, one.metric, one.pooled.value, one.pooled)
        for name, one in zip(names, (own, without), strict=True)
        if one is not None and one.pooled is not None
    ]
    if own is None or own.guess is None or without is not None:
        return bars
    return [*bars, ValueBar.of("guessing", own.metric, own.guess, None)]


def reached(folder: RunFolder, defense: str) -> tuple[str, list[ValueBar]] | None:
    """Return the attack that learns most without a defense, among attacks that reconstruct no images; None if there is
    none. The result holds the attack's name, metric and adversary in words, and its values without a defense, with the
    defense, and by guessing.
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
    # An AUC of 0.5 is that of guessing: a bar from 0 would make it look like half of a success.
    axis = (0.5 if bare.metric == "auc" else 0.0, max([1.0, *(value for value in values if value is not None)]))
    shown = zip(("without a defense", "with it", "guessing"), values, (*pooled, None), strict=True)
    begins = "; bars begin at guessing, 0.5" if axis[0] else ""
    who = f"{observer_words(bare.observer)}, by {bare.attack} on {bare.federation}; {bare.words}{begins}"
    return who, [ValueBar.of(name, bare.metric, value, own, axis) for name, value, own in shown if value is not None]


def use_title(answer: ClaimAnswer) -> str:
    """Return the name of the metric that ``use`` shows; empty if there is none."""
    own, _ = answer.utility
    return numerals.metric(own.metric).label if own is not None else ""


def band(answered: Sequence[ClaimAnswer], *, finished: bool) -> tuple[str, str]:
    """Return a sign for the outcome of a run, and the kind of this outcome: that of its most serious claim, and not
    decided if the run is not finished.
    """
    kinds = {one.kind for one in answered} | (set() if finished else {"open"}) or {"none"}
    kind = next(one for one in SIGNS if one in kinds)
    return SIGNS[kind], kind
