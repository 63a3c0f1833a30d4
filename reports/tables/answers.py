"""Answer in plain words, for each claim of a run: what was found, what that means for people, and what to do next."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from ...audit.bisection import crossing
from ...audit.check import CHECKS
from ...audit.check import short_words as reason_words
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.finding import weak_beyond
from ...audit.metrics import counted_runs, lowest_rate, tpr_at
from ...audit.posterior import success_bound
from ...audit.threshold import choosing, scores_of
from ...audit.wording import at_least, counted, plain
from ...suites.config.part_files import own_parts
from ...suites.results.outcome import INCOMPLETE
from ..reading.claims import ClaimRow, claim_rows, claims_under_test, covered_elsewhere, left_unprotected, same_subject
from ..reading.membership import Membership, memberships
from ..reading.pooling import LEVEL, TWO_SEEDS, gathered
from ..reading.run_folder import HORIZONTAL, RunFolder
from . import numerals
from .covered import (
    better_than_guessing,
    did_words,
    outside_attacks,
    percent,
    revealed_words,
    short_words,
    succeeded,
    successes,
    successes_words,
    uncovered_attacks,
)
from .pooled_rows import AttackRow, UtilityRow, pooled_utility, undefended
from .printed import ANSWERS, namer, observer_words
from .summary import cells

_PLAIN = {check: check.plain for check in CHECKS.values() if check.plain} | {
    "broadcast model": "the model that the server sends to all",
    "all clients in independent runs": "repeated runs with all clients",
    "lots and cohorts as sampled": "which records and clients take part",
    "side channels": "other values that an adversary receives",
    "floating point": "the last digits of numbers",
    "weights": "the noise of single layers",
    "clients": "some of the clients",
    "samples of clients": "some records of the clients",
    "sampling": "how records and clients are drawn at random",
}
_TOLD_APART = "runs with the unit can be distinguished from runs without it more often than the claim allows"
_FOLLOWS = "follows from the aggregates"
_LONGEST_FIRST = sorted(_PLAIN, key=len, reverse=True)


def plain_names(words: str) -> str:
    """Return a text in which the name of a check at the beginning is replaced by plain words; other texts are
    unchanged.
    """
    name = next((name for name in _LONGEST_FIRST if words.startswith(name)), None)
    if name is None:
        return words
    rest = words.removeprefix(name).lstrip(": ")
    return f"{_PLAIN[name]}: {rest}" if rest else _PLAIN[name]


def item_phrase(item: str) -> str:
    """Return a phrase for an item that implementation checks examined; records write ``client #`` for any client
    number.
    """
    return item.replace("client #", "a client")


def item_in_plain_words(item: str) -> str:
    """Return an item that was not examined, in plain words and without its reason, which follows a colon. A reason that
    says that something else determines the item is kept, because without this reason the item would seem untested.
    """
    name, _, reason = item_phrase(item).partition(":")
    return f"{plain_names(name)} (it {_FOLLOWS})" if reason.endswith(_FOLLOWS) else plain_names(name)


SIGNS = {"broken": "✕", "open": "?", "mixed": "!", "fine": "✓", "none": "–"}
"""The sign of an outcome, the most serious one first: a claim is violated, no decision, no violation but attacks that
no claim covers succeeded, no violation, and nothing was claimed. Each has one colour.
"""
FALSE_ALARMS = 0.01
"""Share of false alarms at which the consequences for people are stated."""
PEOPLE = 1000
"""People of whom a first screen speaks."""
_STEPS = 2000
_NAMED = 1
"""Failed checks that the first screen names."""
_GUESSED = round(PEOPLE * FALSE_ALARMS)
_TOO_FEW = re.compile(
    r"even without any error, (?P<absent>[\d,]+) \+ (?P<present>[\d,]+) trials would not refute the claim"
    r"(; (?P<best>with the best attack, )?about (?P<least>[\d,]+) counted runs per arm would be enough"
    r"(?P<what> to find a true eps of [^;]*)?)?"
)
"""The reason of an audit with too few runs, as ``audit.finding`` words it."""
_UNITS = {
    Unit.SAMPLE: "one record of the data",
    Unit.CLIENT: "one participant with all its data",
    Unit.USER: "one person with all records",
    Unit.REPORT: "all that one participant sends",
    Unit.COORDINATE: "one number of a message",
    Unit.LABEL: "the label of one record",
}
OWNER = {
    "REFUTED": "Do not rely on this claim.",
    "NOT_REFUTED": "Report what was tested and what was not; no test proves that a claim holds.",
    "UNDERPOWERED": "Do not rely on this test: it decided nothing.",
}
"""What the owner of a system should do, by the verdict on its claim."""
NOT_TESTED = "Do not report this claim as tested."
"""The same for every other verdict."""
_ENGINEER = {
    "REFUTED": "Mend the defense or state a larger ε, and run the suite again.",
    "NOT_REFUTED": "Keep this run as a baseline (fedassay gate), and test again when code, data, model or rounds "
    "change.",
    "UNDERPOWERED": "Make more runs{}; fedassay plan prints how many find that half of the noise is missing.",
    "OUT_OF_SCOPE": "No audit method covers this claim: state it for what an adversary receives.",
    "NOT_AUDITED": "Add an audit to the suite.",
    "FAILED": "Mend the error that the table of claims shows, and continue with fedassay resume --retry-failed.",
}
_TOO_SMALL = (
    "The defense does not state this claim for the audit's federation: change the suite's table [audit] as the reason "
    "in the table of claims says."
)
_OWN = "To test your own training: fedassay audit mine.py:training"
"""The step from a simulation to a real system."""
WEAK_OWNER = "Do not report this claim as tested: only a large violation is ruled out."
_WEAK_ENGINEER = "Make more runs{}, until the min detectable ε is at most {most}."
_INCOMPLETE_OWNER = "Do not rely on this run: it is incomplete."
_MISSED_OWNER = "Do not rely on this run: its audits missed a fault that was planted to test them."
_CHECKED_OWNER = "Do not rely on this run: its runs missed a fault that was planted to test them; only checks found it."
_MISSED = "Make more runs{}, until the audits refute the planted faults ({})."
_WIDER = "To stop the attacks outside this claim, choose a defense whose claim covers {}."
_CHANGE_FIRST = "The model is of no use: change the settings of the defense first."
_TUNING = (
    "this run does not record how its settings (clip, rounds, learning rate) were chosen, and its epsilon does not "
    "count what trials on the same data reveal"
)
"""What stands beside a privacy notice, because a claim is about one run with given parameters."""
_DECIDE = "Decide whether the attacks outside this claim matter: it does not protect against them."


@dataclass(frozen=True, kw_only=True)
class ClaimAnswer:
    """The answers that a report gives about one claim, in full sentences; an answer is empty if there is nothing to
    say.

    Args:
        folder: the run.
        row: the claim with its audit.
        defense: its label, with the federation where the run has several.
    """

    folder: RunFolder
    row: ClaimRow
    defense: str

    @property
    def verdict(self) -> str:
        return self.row.verdict

    @property
    def found(self) -> str:
        """The result in two or three words, such as No violation found."""
        words, failed = ANSWERS.get(self.verdict, self.verdict), len(self.row.failed_checks)
        if self.kind == "mixed":
            return f"{words}; attacked outside the claim"
        if self.kind != "open" or self.verdict not in ("NOT_REFUTED", "UNDERPOWERED"):
            return words
        why = f"{counted(failed, 'implementation check')} failed" if failed else ""
        if self.verdict == "NOT_REFUTED" and not failed:
            overlooked = self.incomplete and any(missed_controls(self.folder))
            missed = "the runs missed a planted fault" if overlooked else "the run is incomplete"
            why = missed if self.incomplete else "the test is weak"
        return ": ".join(filter(None, (ANSWERS["UNDERPOWERED"], why)))

    @property
    def kind(self) -> str:
        """The outcome that sign and colour show, one of ``SIGNS``."""
        if self.verdict == "REFUTED":
            return "broken"
        if self.verdict != "NOT_REFUTED" or self.weak or self.incomplete or self.row.failed_checks:
            return "open"
        return "mixed" if successes(self.folder, self.row.defense) else "fine"

    @property
    def weak(self) -> str:
        """Why the test counts as weak; empty unless the user accepted a weak test."""
        return weakness(self.row)

    @property
    def incomplete(self) -> str:
        """Why a test that found no violation decides nothing, because its run is incomplete; empty otherwise."""
        gate = self.folder.gate
        if gate is None or gate.exit_code != INCOMPLETE or self.verdict != "NOT_REFUTED":
            return ""
        return gate.verdict_line.partition(": ")[2]

    @property
    def missed(self) -> bool:
        """Whether a fault that was planted to test the run escaped its runs and its checks."""
        return bool(missed_controls(self.folder)[0])

    @property
    def impossible(self) -> str:
        """The checks that could not be made, each with the reason, in brackets; empty where all could."""
        left = [one for one in self.row.checks if one.status != "ok"]
        names = (one.metric.removeprefix("check_").replace("_", " ") for one in left)
        said = "; ".join(f"{plain_names(name)}: {one.reason}" for name, one in zip(names, left, strict=True))
        return said and f" ({said})"

    @property
    def evidence(self) -> str:
        """A description of what the failed checks found."""
        failed = self.row.failed_checks
        # An epsilon at the delta of a curve's tangent looks smaller than the claimed one.
        named = "; ".join(
            _TOLD_APART if " at " in check.unit else plain_names(reason_words(check.reason))
            for check in failed[:_NAMED]
        )
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        return f"Failed {_checks(self.row)}: {named}{more}." if failed else ""

    @property
    def promise(self) -> str:
        """The claim in plain words."""
        claim = self.row.claim
        return (
            f"Claim: what {claim.observer.phrase} can learn about any one {claim.unit}, which is "
            f"{_UNITS[claim.unit]}, is limited to ε = {plain(claim.epsilon)} (δ = {plain(claim.delta)}, "
            f"{claim.adjacency.phrase}, {self.span})."
        )

    @property
    def stated_by(self) -> str:
        """Who states the claim, and what its test was about."""
        fields, source = self.folder.defense_fields(self.row.defense), self.row.claim.source.partition("; ")[0]
        part, tested = str(fields.get("part") or self.row.defense), "tested in a simulation, not in a deployed system"
        if self.row.published:
            return f"Stated by a paper, as published ({source}); {tested}, with fedassay's code of the defense."
        if fields and part not in own_parts("defense"):
            return f"Stated by {part}, code that is no part of fedassay, with the source {source}; {tested}."
        return f"Stated by fedassay's code {part} for the settings of this run, after {source}; {tested}."

    @property
    def span(self) -> str:
        """The rounds that the claim covers, in words."""
        kind, _ = self.folder.federations.get(self.row.federation, (HORIZONTAL, {}))
        return kind.span(self.row.claim.rounds)

    @property
    def unit(self) -> str:
        """A phrase for one unit that the claim protects, such as a record or a client."""
        return _UNITS[self.row.claim.unit]

    @property
    def power(self) -> str:
        """A description of the violations of the claim that the test could have found."""
        row, claimed = self.row, plain(self.row.claim.epsilon)
        if self.verdict in ("NOT_AUDITED", "OUT_OF_SCOPE", "NO_CLAIM", "FAILED"):
            return ""
        if self.verdict == "REFUTED":
            return " ".join(filter(None, (_violation(row, row.claim), _false_alarm(row))))
        undecided = _undecided(row) if self.verdict == "UNDERPOWERED" else ""
        if row.detectable is None:
            return undecided or "How large a violation this test would find is not known."
        if self.missed:
            return undecided or "How large a violation this test would find is not known: it missed a planted fault."
        found = numerals.epsilon(row.detectable)
        they = "they" if row.by_checks else "it"
        between = f"; between ε {claimed} and {found} {they} may miss it" if row.detectable > row.claim.epsilon else ""
        shown = (
            f"If all noise is so small that the true ε is {found} (claimed: {claimed}), "
            f"{'the checks of the code find' if row.by_checks else 'this test finds'} it in 9 of 10 cases{between}."
        )
        return " ".join(filter(None, (undecided, shown)))

    @cached_property
    def utility(self) -> tuple[UtilityRow | None, UtilityRow | None]:
        """The first utility metric of the defense in the claim's federation, and the same metric without a defense."""
        rows = [
            one
            for one in pooled_utility(self.folder)
            if one.federation == self.row.federation and numerals.is_quality(one.metric)
        ]
        own = next((one for one in rows if one.defense == self.row.defense and one.pooled), None)
        label = undefended(one.defense for one in rows)
        return own, next((one for one in rows if own and (one.defense, one.metric) == (label, own.metric)), None)

    @property
    def quality(self) -> str:
        """A description of the model's quality under the defense, and without one."""
        own, without = self.utility
        if own is None or own.pooled is None:
            return ""
        name, value = numerals.metric(own.metric).label, numerals.metric_value(own.metric, own.pooled.value)
        compared = (
            f", and {numerals.metric_value(own.metric, without.pooled.value)} without a defense"
            if without and without.pooled
            else ""
        )
        useless = f" It is of no use: {own.useless}." if own.useless else ""
        return f"The model under this defense: {name} {value}{compared}.{useless}"

    @property
    def _qualities(self) -> list[str]:
        """The model's quality under the defense, overall and in its worst class, in words."""
        own, _ = self.utility
        names = () if own is None else (own.metric, f"class_{own.metric}_worst")
        return [
            f"{numerals.metric(one.metric).label.replace(', ', ' of the ')} "
            f"{numerals.metric_value(one.metric, one.pooled.value)}"
            for one in pooled_utility(self.folder)
            if (one.federation, one.defense) == (self.row.federation, self.row.defense)
            if one.metric in names and one.pooled
        ]

    @property
    def people(self) -> str:
        """A description of what the claim allows an attacker to learn about people."""
        limit = allowed_words(self.row.claim)
        if self.verdict == "REFUTED":
            return f"The claim says that {limit}. The claim does not hold, so do not count on this limit."
        return f"If the claim holds, {limit}."

    @cached_property
    def _members(self) -> list[Membership]:
        """The membership attacks of this run that the claim covers, the best one first."""
        place, claim = (self.row.federation, self.row.defense), self.row.claim
        own = [one for one in memberships(self.folder) if (one.federation, one.defense) == place and not one.null]
        return sorted((one for one in own if claim in one.claims), key=lambda one: -one.area)

    @property
    def found_of_thousand(self) -> int | None:
        """The number of members, out of 1,000, that the best attack found with one false alarm in a hundred; None if
        this false-alarm rate was not measured.
        """
        return _found(self._members[0]) if self._members else None

    @property
    def reached(self) -> str:
        """A description of what the best attack of this run learned, among the attacks that the claim covers."""
        if not (own := self._members):
            return ""
        best, claim = own[0], self.row.claim
        worst = best.adversary == "worst_case"
        knows = " (it knows all data but the one unit, as differential privacy assumes)" if worst else ""
        reached = _reached(best, claim, len(own))
        return f"The best attack of this run that the claim covers, {best.attack}{knows}, {reached}."

    @cached_property
    def _beyond(self) -> list[tuple[str, list[AttackRow]]]:
        """The attacks on the defense that no claim covers, by the reason."""
        more = ("by adversaries who receive more", uncovered_attacks(self.folder, self.row.defense))
        return [more, *outside_attacks(self.folder, self.row.defense).items()]

    @cached_property
    def outside(self) -> str:
        """A description of what those attacks achieved that no claim covers, if they did better than guessing, or if
        the success of guessing is unknown.
        """
        said = []
        for reason, rows in self._beyond:
            shown = [did_words(self.folder, one) for one in rows if better_than_guessing(self.folder, one) is not False]
            said += [f"{reason[0].upper()}{reason[1:]}: {'; '.join(shown)}."] if shown else []
        return f"Attacks outside this claim. {' '.join(said)}" if said else ""

    @property
    def uncovered(self) -> str:
        """The adversaries that the claim does not cover, and the attacks outside the claim that showed nothing."""
        row, others = self.row, same_subject(self.folder, self.row)
        left = [words.removeprefix("against ") for words in left_unprotected(row.claim, row.rounds_run, others)]
        elsewhere = [observer.phrase for observer in covered_elsewhere(row.claim, others)]
        failed = [
            did_words(self.folder, one)
            for _, rows in self._beyond
            for one in rows
            if better_than_guessing(self.folder, one) is False
        ]
        said = {
            "Not covered by this claim": ", ".join(left),
            "Covered by another claim of this defense": ", ".join(elsewhere),
            "Attacks outside this claim that could not be distinguished from guessing": "; ".join(failed),
        }
        return " ".join(f"{name}: {words}." for name, words in said.items() if words)

    @property
    def unseen(self) -> str:
        """A description of what the test of the claim did not examine."""
        if self.verdict == "NOT_AUDITED":
            return "Whether the claim holds was not tested: this run has no result of an audit of it."
        items = self.row.not_looked_at
        names = list(dict.fromkeys(map(item_in_plain_words, items)))
        why = items[0].partition(":")[2].strip() if items else ""
        first = f" The first was not looked at for this reason: {why}." if why else ""
        return f"Not looked at ({len(names)}): {', '.join(names)}.{first}" if names else ""

    @property
    def notice(self) -> str:
        """A sentence about the claim for a privacy notice, and what must stand beside it; empty for a paper's claim."""
        claim, date = self.row.claim, (self.folder.manifest.finished or "")[:10]
        if self.row.published:
            return ""
        if self.kind not in ("fine", "mixed"):
            return f"A privacy notice cannot use this claim: {self.found.lower()}."
        left = left_unprotected(claim, self.row.rounds_run, same_subject(self.folder, self.row))
        reached = [short_words(self.folder, one) for one in successes(self.folder, self.row.defense)]
        unseen = dict.fromkeys(map(item_in_plain_words, self.row.not_looked_at))
        beside = {
            "trusted": [claim.trust],
            "not protected": left,
            "attacks outside the claim that succeeded": reached,
            "not looked at": list(unseen),
            "quality of the model": self._qualities,
            "tuning": [_TUNING],
        }
        said = "; ".join(f"{name}: {', '.join(items)}" for name, items in beside.items() if items)
        first = "" if _recorded(self.folder) else f"Of a simulation, and not yet of a system of your own. {_OWN}. "
        what = f"what {claim.observer.phrase} can learn about any one {claim.unit} ({self.unit})"
        limit = f"to epsilon {plain(claim.epsilon)} at delta {plain(claim.delta)} {self.span}"
        return (
            f"{first}For a privacy notice: “designed to limit {what} {limit}; tests of {date} found no violation; "
            f"this is no proof”. Beside it must stand – {said}."
        )

    @property
    def owner(self) -> str:
        """Advice to the owner of the system."""
        if self.incomplete:
            missed, checked = missed_controls(self.folder)
            return _MISSED_OWNER if missed else _CHECKED_OWNER if checked else _INCOMPLETE_OWNER
        if self.weak and self.verdict == "NOT_REFUTED":
            return WEAK_OWNER
        own = OWNER.get(self.verdict, NOT_TESTED)
        if not (self._undecided and self.outside):
            return own
        return f"{own} {_DECIDE}" if self.verdict == "UNDERPOWERED" else _DECIDE

    @property
    def engineer(self) -> str:
        """Advice to the system's engineer; if no violation of the claim was found, the first step."""
        own, _ = self.utility
        if self._undecided and own and own.useless:
            return _CHANGE_FIRST
        return f"{self._step} {_OWN}." if self.kind in ("fine", "mixed") and not _recorded(self.folder) else self._step

    @property
    def _undecided(self) -> bool:
        return self.verdict in ("NOT_REFUTED", "UNDERPOWERED")

    @property
    def _step(self) -> str:
        row = self.row
        if self.folder.gate is None and self.verdict == "NOT_AUDITED":
            return f"Finish the run: fedassay resume {self.folder.path}."
        if row.failed_checks and self.verdict == "REFUTED":
            return f"Mend what the failed {_checks(row)} found, and run the suite again."
        if row.failed_checks:
            return (
                f"Read which implementation {_checks(row)} failed: each names a difference from what the claim assumes."
            )
        if self.incomplete:
            missed = [name for names in missed_controls(self.folder) for name in names]
            return (
                _MISSED.format(more_runs(self.folder), ", ".join(missed))
                if missed
                else f"Complete the run first ({self.incomplete})."
            )
        if self.weak and self.verdict == "NOT_REFUTED":
            return _WEAK_ENGINEER.format(more_runs(self.folder), most=plain(weak_beyond(row.claim.epsilon)))
        if self.verdict == "OUT_OF_SCOPE" and row.record and "the audit's federation (" in row.record.reason:
            return _TOO_SMALL
        who = dict.fromkeys(
            one.observer for one in uncovered_attacks(self.folder, row.defense) if succeeded(self.folder, one)
        )
        if who and self.verdict == "NOT_REFUTED":
            return _WIDER.format(" and ".join(map(observer_words, who)))
        return _ENGINEER.get(self.verdict, "").format(more_runs(self.folder))


def answers(folder: RunFolder) -> list[ClaimAnswer]:
    """Return one answer per claim of the run, without controls (deliberately broken defenses). Claims that need
    attention come first; then follow the claims and sweeps of defenses on which attacks outside the claims succeeded.
    """
    rows = claims_under_test(folder)
    name = namer(rows, controls=False)
    # All claims of a sweep stay together: no epsilon of it is worse than others because a chance attack succeeded.
    attacked = {folder.line_of(row.defense) for row in rows if successes(folder, row.defense)}
    ordered = sorted(rows, key=lambda row: (not row.needs_attention, folder.line_of(row.defense) not in attacked))
    return [ClaimAnswer(folder=folder, row=row, defense=name(row)) for row in ordered]


_ENOUGH = re.compile(r"([\d,]+) (?:counted runs|replicas) per arm (?:would be enough|are needed)")
"""The number of runs that would do, as the reasons of audits word it."""


def enough_runs(reason: str) -> int | None:
    """Return how many counted runs per arm would be enough, where the reason of a finding states it."""
    found = _ENOUGH.search(reason)
    return None if found is None else int(found[1].replace(",", ""))


def more_runs(folder: RunFolder) -> str:
    """Return the settings with the number of runs of the audits that decided nothing, each with the number that would
    do where the audit states it; empty for audits that are not by independent runs.
    """
    audit = folder.manifest.suite.get("audit")
    if not isinstance(audit, dict) or audit.get("design") != "independent" or not audit.get("replicas"):
        return ""
    shared = "most_replicas" if audit.get("most_replicas") else "replicas"
    wanted: dict[str, tuple[int, int]] = {}
    for row in claim_rows(folder):
        if row.record is None or not (row.verdict == "UNDERPOWERED" or row.accepted):
            continue
        own = folder.defense_fields(row.defense).get("replicas")
        name, now = (f"defenses.{row.defense}.replicas", own) if own else (f"audit.{shared}", audit[shared])
        counted_runs = enough_runs(row.record.reason) or 0
        # A part of the runs may have chosen the threshold only.
        least = scores_of(counted_runs) if row.record.n == now - choosing(now) else counted_runs
        wanted[name] = max(wanted.get(name, (0, now)), (least, now))
    settings = [f"--set {name}={most} (now {now})" for name, (most, now) in wanted.items() if most > now]
    return f": {', '.join(settings)}" if settings else f" (audit.{shared}, now {audit[shared]:,})"


def _checks(row: ClaimRow) -> str:
    return "check" if len(row.failed_checks) == 1 else "checks"


def weakness(row: ClaimRow) -> str:
    """Return why the test of a claim counts as weak; empty unless the claim counts as not refuted only because the user
    accepts a weak test.
    """
    if not (row.stated and row.accepted and row.detectable):
        return ""
    return f"it may miss a true ε below {numerals.epsilon(row.detectable)}, which the user accepted"


def _undecided(row: ClaimRow) -> str:
    """Why the audit could not judge the claim: the first words of its record's reason."""
    why = row.record.reason.partition("; evidence: ")[0] if row.record else ""
    said = "This test says nothing for or against the claim"
    if few := _TOO_FEW.fullmatch(why):
        enough = f"about {few['least']} of each would be enough{few['what'] or ''}"
        least = f"; {few['best'] or ''}{enough}" if few["least"] else ""
        return (
            f"{said}: after {few['present']} runs with the unit and {few['absent']} without it, even an attack that "
            f"never errs would not show a violation{least}."
        )
    return f"{said}: {why}." if why else f"{said}."


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """The rate at which a test recognised runs of one ``arm``, its rate of false ``alarms``, and the recognition rate
    that the claim allows at that rate, all in [0, 1]. ``arm``: with or without the unit, whichever has the fewer false
    alarms.
    """

    arm: str
    found: float
    allowed: float
    alarms: float

    @classmethod
    def beyond(cls, claim: Claim, fpr_high: float | None, fnr_high: float | None) -> "Recognised | None":
        """Build the recognition rates from a test's bounds on its error rates; None if the claim allows these rates."""
        if fpr_high is None or fnr_high is None:
            return None
        alarms, missed = sorted((fpr_high, fnr_high))
        arm, allowed = "with", most_found(claim, alarms)
        if alarms < fpr_high:
            # The other side of the same curve: an alarm is a run with the unit that is taken for one without it.
            arm, allowed = "without", 1 - crossing(lambda rate: most_found(claim, rate) < 1 - alarms, high=1.0)[0]
        return cls(arm=arm, found=1 - missed, allowed=allowed, alarms=alarms) if 1 - missed > allowed else None

    @property
    def words(self) -> tuple[str, str, str]:
        """The recognition rate, the allowed rate and the false-alarm rate as counts, such as 56 of 100. Counts have
        only as many digits as distinguish the first two.
        """
        sizes = (100, 1000, 10_000)
        whole = next((n for n in sizes if math.floor(n * self.found) > math.ceil(n * self.allowed)), sizes[-1])
        shares = ((self.found, math.floor), (self.allowed, math.ceil), (self.alarms, math.ceil))
        found, allowed, alarms = (f"{towards(whole * share):,} of {whole:,}" for share, towards in shares)
        return found, allowed, alarms.replace(" of ", " in ")


def _violation(row: ClaimRow, claim: Claim) -> str:
    if row.epsilon_low is not None and row.epsilon_low > claim.epsilon:
        return f"The true ε is at least {at_least(row.epsilon_low)}, and the claimed one is {plain(claim.epsilon)}."
    if claim.curve is None or (one := Recognised.beyond(claim, *row.rates)) is None:
        return "The test found more than the claim allows at one rate of false alarms (its trade-off curve)."
    found, allowed, alarms = one.words
    return (
        f"The test recognised too many runs: at least {found} of those {one.arm} the {claim.unit}, with at most "
        f"{alarms} false alarms; at so few false alarms, the claim allows at most {allowed}."
    )


def _percent(share: float, towards: Callable[[float], int]) -> str:
    """A bound on a share in per cent with one decimal."""
    return f"{100 * numerals.rounded(share, 3, towards):g} %"


def _false_alarm(row: ClaimRow) -> str:
    level = row.record.ci_level if row.record else None
    return (
        ""
        if level is None
        else f"A correct defense is refuted with probability {_percent(1 - level, math.ceil)} at most."
    )


def allowed_of_thousand(claim: Claim) -> int:
    """Return how many of 1,000 participating units an attacker with one false alarm in a hundred finds at most if the
    claim holds, rounded up.

    From epsilon and delta (Wasserman and Zhou 2010, Theorem 2.4; Kairouz et al. 2015), and the trade-off curve where
    one is stated.
    """
    return round(PEOPLE * numerals.rounded(most_found(claim, FALSE_ALARMS), 3, math.ceil))


def allowed_by(claim: Claim) -> str:
    """Return, in words, what the number ``allowed_of_thousand`` follows from; where it follows from the trade-off
    curve, also the number that epsilon and delta alone allow.
    """
    plainly = allowed_of_thousand(replace(claim, curve=None))
    if allowed_of_thousand(claim) == plainly:
        return "by ε and δ alone"
    rate = claim.parameters.get("rate", claim.parameters.get("sampling_rate"))
    law = f"{claim.mechanism}{f' with rate {plain(rate)}' if isinstance(rate, int | float) else ''}"
    differs = f"which at equal ε differs by mechanism and sampling, here {law}"
    return f"by the claim's trade-off curve, {differs}; ε and δ alone allow {plainly:,}"


def allowed_words(claim: Claim) -> str:
    """Return, in words, how many units the claim lets an attacker find, and what this number follows from. A claim
    under replace-one adjacency hides only the contents of a unit.
    """
    most, why = f"{allowed_of_thousand(claim):,} of 1,000", f"(guessing: {_GUESSED}; {allowed_by(claim)})"
    if claim.adjacency is Adjacency.REPLACE_ONE:
        return (
            f"an attacker who decides which of two contents a {claim.unit} had, with 1 false alarm in 100, finds the "
            f"second in at most {most} cases {why}"
        )
    return f"an attacker who raises 1 false alarm in 100 finds at most {most} {claim.unit}s that took part {why}"


def most_found(claim: Claim, rate: float) -> float:
    """Return the largest true-positive rate that the claim allows at the attacker's false-positive rate."""
    return success_bound(rate, epsilon=claim.epsilon, delta=claim.delta, curve=claim.curve)


def _reached(best: Membership, claim: Claim, of: int) -> str:
    """What the best of ``of`` attacks reached; its interval holds for all of them jointly."""
    ends, allowed = best.interval(1 - (1 - LEVEL) / of), _allowed_area(claim)
    if claim.adjacency is Adjacency.REPLACE_ONE:
        pairs = f"of a {claim.unit} with the one and a {claim.unit} with the other content"
    else:
        pairs = f"of one {claim.unit} that took part and one that did not"
    right = f"picked the right one from {percent(best.area)} of all pairs {pairs}"
    if ends is not None:
        several = f", joint for {of} attacks" if of > 1 else ""
        right += f" (95 % interval over {best.over}{several}: {percent(ends[0])} to {percent(ends[1])})"
    elif best.two_seeds:
        right += f" ({TWO_SEEDS})"
    by_chance = ends is not None and ends[0] <= allowed < best.area
    inside = "; this lies inside the interval, so that chance alone can explain the difference" if by_chance else ""
    limit = f"The claim allows {100 * allowed:.1f} % ({_area_by(claim)}){inside}"
    reached = f"{right}. {limit}. Guessing picks {percent(0.5)}"
    found = _found(best)
    return reached if found is None else f"found {found:,} of 1,000, and {reached}"


def _found(best: Membership) -> int | None:
    rate = None if best.shadowed is not None else lowest_rate(counted_runs(best.sides))
    # Candidates of few runs share their noise: a rate of false alarms among them says nothing about other runs.
    if rate is None or rate > FALSE_ALARMS:
        return None
    return round(PEOPLE * tpr_at(best.sides.member, best.sides.nonmember, FALSE_ALARMS))


def _allowed_area(claim: Claim) -> float:
    """The largest AUC of an attack under the claim, rounded up to three decimals."""
    return _area(claim.epsilon, claim.delta, claim.curve)


def _area_by(claim: Claim) -> str:
    alone = _area(claim.epsilon, claim.delta, None)
    if alone == _allowed_area(claim):
        return "by ε and δ alone"
    return f"by its trade-off curve; ε and δ alone allow {100 * alone:.1f} %"


@lru_cache(maxsize=1024)
def _area(epsilon: float, delta: float, curve: Curve | None) -> float:
    # The true-positive rate rises, so that the right ends of its steps give no smaller an AUC.
    rates = (step / _STEPS for step in range(1, _STEPS + 1))
    most = sum(success_bound(rate, epsilon=epsilon, delta=delta, curve=curve) for rate in rates) / _STEPS
    return numerals.rounded(most, 3, math.ceil)


def headline(folder: RunFolder) -> str:
    """Return one sentence about what a run found on the claims under test, and about what attacks outside all of these
    claims achieved.
    """
    rows = claims_under_test(folder)
    if not rows and _recorded(folder) and folder.gate is not None:
        return revealed_words(folder)
    outside = successes_words(folder, [row.defense for row in rows])
    return "; ".join(filter(None, (_found_words(folder, rows), outside)))


def _found_words(folder: RunFolder, rows: Sequence[ClaimRow]) -> str:
    """What was found about the claims ``rows`` under test."""
    if folder.gate is None:
        return "This run is not finished"
    if not rows:
        return str(folder.manifest.suite.get("name", "")) or "A run without claims"
    broken = sum(row.verdict == "REFUTED" for row in rows)
    total = counted(len(rows), "privacy claim")
    if broken:
        names = ", ".join(dict.fromkeys(row.defense for row in rows if row.verdict == "REFUTED"))
        return f"The privacy claim is violated: {names}" if len(rows) == 1 else f"{broken} of {total} violated: {names}"
    if folder.gate.exit_code == INCOMPLETE:
        missed, checked = missed_controls(folder)
        if missed:
            return f"Not decided: the audits missed {counted(len(missed), 'planted fault')}"
        if checked:
            return f"Not decided: too few runs to find {counted(len(checked), 'planted fault')}"
        return f"Not decided: the run is incomplete, so {total} cannot be judged"
    open_ = sum(row.verdict != "NOT_REFUTED" or bool(row.failed_checks) for row in rows)
    if open_:
        return f"{open_} of {total} not decided" if open_ > 1 or len(rows) > 1 else "The privacy claim is not decided"
    weak = sum(bool(weakness(row)) for row in rows)
    if not weak:
        return f"No violation found in {total}"
    tests = "the test is" if len(rows) == 1 else f"{weak} of {len(rows)} tests {'is' if weak == 1 else 'are'}"
    return f"Not decided: {tests} weak"


def missed_controls(folder: RunFolder) -> tuple[list[str], list[str]]:
    """Return the defenses that are broken on purpose and whose audits found no fault, and those whose fault only
    implementation checks found.
    """
    done = ("REFUTED", "NOT_AUDITED", "FAILED")
    left = [row for row in claim_rows(folder) if row.should_be_refuted and row.verdict not in done]
    missed = [row.defense for row in left if not row.failed_checks]
    return missed, [row.defense for row in left if row.failed_checks]


def controls_sentence(rows: Sequence[ClaimRow]) -> str:
    """Return a sentence about what the controls (deliberately broken defenses) show about the run's audits; empty
    without controls.
    """
    controls = [row for row in rows if row.should_be_refuted]
    if not controls and any(row.record is not None and row.stated for row in rows):
        return "This run has no control, a defense that is broken on purpose and shows that its audits find violations."
    if not controls:
        return ""
    tested = [row for row in controls if row.verdict not in ("NOT_AUDITED", "FAILED")]
    found = sum(row.verdict == "REFUTED" for row in tested)
    about = (
        f"{counted(len(controls), 'defense')} of this run {'is' if len(controls) == 1 else 'are'} broken on purpose "
        "(controls)."
    )
    open_ = len(controls) - len(tested)
    rest = f" {open_} of {len(controls)} {'is' if open_ == 1 else 'are'} not tested yet." if open_ else ""
    if not tested:
        return about + rest
    checked = sum(row.verdict != "REFUTED" and bool(row.failed_checks) for row in tested)
    if found + checked < len(tested):
        shows = ", so these audits miss violations, and their other answers say little"
    elif checked:
        shows = f", {checked} by checks of the code alone: the runs are too few to find such errors"
    else:
        shows = ", so these audits find such errors"
    by = " by runs" if checked else ""
    return f"{about} {found} of {len(tested)} {'was' if found == 1 else 'were'} found{by}{shows}.{rest}"


def what_was_tested(folder: RunFolder) -> list[str]:
    """Return a description of what was tested: suite, data, model, federation, and the size of the audit."""
    trained = dict.fromkeys((row.federation, row.dataset, row.model) for row in folder.rows())
    # What an unfinished run has no row of yet stands in its suite.
    for name, (_, table) in folder.federations.items():
        if name not in {federation for federation, _, _ in trained}:
            trained[name, str(table.get("dataset", "")), str(table.get("model", ""))] = None
    said = [_trained(folder, *one) for one in sorted(trained)]
    tested = "Tested" if folder.gate is not None else "To be tested"
    about = f"{tested}: {system_tested(folder)}; the defenses of the suite “{folder.manifest.suite.get('name', '')}”"
    audited = dict.fromkeys(row.audited_on for row in claim_rows(folder) if row.audited_on)
    extra = [f"Their claims were {words}." for words in audited]
    if _recorded(folder):
        extra.append(str(folder.manifest.suite.get("description", "")))
    sized = _audit_size(folder) if folder.gate is not None else f" So far: {cells(folder)}."
    return [f"{about} ({'; '.join(said)}).{sized}" if said else f"{about}.{sized}", *extra]


def system_tested(folder: RunFolder) -> str:
    """Return whether federations were simulated, or what one observer received in a real training was attacked."""
    if not (recorded := _recorded(folder)):
        return "a simulated federation, not a deployed system"
    more = "" if recorded == len(folder.federations) else ", and simulated federations"
    return f"messages recorded from a training{more}"


def _recorded(folder: RunFolder) -> int:
    """The number of federations whose messages were recorded."""
    return sum(isinstance(table.get("recording"), Mapping) for _, table in folder.federations.values())


def audited_size(folder: RunFolder) -> str:
    """Return how large the federations of the audits were, in one sentence; empty without such an audit."""
    audit = folder.manifest.suite.get("audit")
    if not _audit_size(folder) or not isinstance(audit, dict):
        return ""
    clients, samples = counted(audit["clients"], "client"), counted(audit["samples_per_client"], "record")
    return f"Claims were audited with {clients} of at most {samples} each."


def _trained(folder: RunFolder, federation: str, dataset: str, model: str) -> str:
    """What was trained in a federation, by whom."""
    modelled = f"the model {model} on " if model else ""
    return ", ".join((f"{federation}: {modelled}the data {dataset}", *folder.size_of(federation)))


def _audit_size(folder: RunFolder) -> str:
    """The federations and the number of runs of audits by independent runs, which may be smaller than the suite's."""
    audit = folder.manifest.suite.get("audit")
    rows = [row for row in claim_rows(folder) if row.record and row.record.n and not row.by_attacks]
    if not isinstance(audit, dict) or audit.get("design") != "independent" or not rows:
        return ""
    clients, samples = audit.get("clients"), audit.get("samples_per_client")
    if not isinstance(clients, int) or not isinstance(samples, int):
        return ""
    tested = gathered((row.record.n, row) for row in rows if row.record and row.record.n)
    each = "; ".join(
        f"{', '.join(dict.fromkeys(row.defense for row in own))} in {number:,} small trainings with one planted "
        f"{' or '.join(sorted({str(row.claim.unit) for row in own}))} and as many without it"
        for number, own in tested.items()
    )
    return f" Audited: {each}; each of {counted(clients, 'client')} with at most {counted(samples, 'record')} each."
