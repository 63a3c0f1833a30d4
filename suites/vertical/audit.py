"""Audit one privacy claim about a vertical federation, by runs with either of two labels, or rows, of one person, and
by checks of what the defense's hooks release.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...audit.check import CHANNEL, PERSON_MOVE, RELEASED, Check, CheckResult
from ...audit.claim import Claim, Unit
from ...audit.finding import CheckPower, Finding, judge, not_audited
from ...audit.measurement import Measurement
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ...audit.threshold import CHOOSING
from ...checks.results import worst_results
from ...defenses.vertical.defense import VerticalDefense
from ...fl.streams import Streams
from ...fl.vertical.protection import Noised, VerticalLaw, VerticalPlan
from ...fl.vertical.task import VerticalTask
from ..attacking.jobs import OtherAuditJob
from ..config.other_federations import small_plan, vertical_plan_of, vertical_task_of
from ..config.tables.other_federations import VerticalAuditSpec, VerticalSpec
from .case import VerticalCase
from .checks.play_back import play_back_checks, vertical_checks
from .label_coins import measured_in_one_run
from .pairs import frequent, why_no_pair
from .runs import DependentRuns, measured_in_runs

WHOLE = Check("the whole federation")
MOST_STEPS, MOST_NUMBERS = 1000, 20_000
"""Steps of a federation, and numbers of its messages of a batch, up to which the checks are made on it as it is."""


@dataclass(frozen=True, kw_only=True)
class VerticalAuditJob(OtherAuditJob):
    """A job that audits one claim about a vertical federation, by independent runs of a small federation or by one
    run.
    """

    federation: VerticalSpec
    defense: VerticalDefense

    @property
    def settings(self) -> VerticalAuditSpec:
        """The federation's audit table; without it no such job is planned."""
        assert self.federation.audit is not None
        return self.federation.audit

    @property
    def one_run(self) -> bool:
        """Whether the verdict comes from one run of the whole federation, and not from two arms of runs."""
        return self.settings.design != "independent"

    @property
    def replicas(self) -> int:
        return 0 if self.one_run else self.settings.replicas

    @property
    def tested(self) -> int:
        return self.replicas - round(CHOOSING * self.replicas)  # The others choose the threshold.

    @property
    def runs(self) -> int:
        return 1 if self.one_run else 2 * (self.replicas + self.settings.pilot)

    def found(self) -> tuple[Finding, tuple[CheckResult, ...]]:
        """Return the finding about a claim, and the results of its implementation checks.

        OUT_OF_SCOPE where the defense states another claim about the federation that is run, no pair of inputs is known
        for the claim's unit and observer, or runs that are made together depend on each other.
        """
        claim, settings = self.claim, self.settings
        why = why_not(claim, settings.design, frozen=self.federation.frozen)
        if why:
            return not_audited(claim, why), ()
        whole = vertical_task_of(self.federation, self.seed)
        own = vertical_plan_of(self.federation, whole)
        of_small, of_whole = self._case(*_restricted(whole, own, settings)), self._case(whole, own)
        run = of_whole if self.one_run else of_small
        if run is None:
            return not_audited(claim, "for the federation that the audit runs, the defense states another claim"), ()
        checks = worst_results([*_checks(of_small), *_whole_checks(of_whole)], "federations", required=RELEASED)
        try:
            measured = _measured(run, settings, alpha=self.alpha)
        except DependentRuns as why:
            return not_audited(claim, str(why)), checks
        return judge(claim, measured, checked=_power(claim, checks, of_small.law if of_small else None)), checks

    def _case(self, task: VerticalTask, plan: VerticalPlan) -> VerticalCase | None:
        """The claim about a federation; None where the defense states another one about it."""
        return VerticalCase.stated(self.defense.prepare(plan), self.claim, task, plan, Streams(self.seed))


def _measured(case: VerticalCase, settings: VerticalAuditSpec, *, alpha: float) -> Measurement:
    if settings.design == "one_run":
        return measured_in_one_run(case, frequent(case.task), alpha=alpha)
    return measured_in_runs(case, case.pairs, replicas=settings.replicas, pilot=settings.pilot, alpha=alpha)


def _checks(case: VerticalCase | None) -> tuple[CheckResult, ...]:
    """The results of the implementation checks, on the small federation."""
    if case is None:
        words = "for the small federation of the implementation checks, the defense states another claim"
        return (RELEASED.skipped(words),)
    return vertical_checks(case)


def _whole_checks(case: VerticalCase | None) -> tuple[CheckResult, ...]:
    """The results of the checks on the federation as it is trained: with as many steps, and batches of the same sizes.
    One pair of data sets per party, because the small federation is checked with all of them.
    """
    if case is None:
        return ()
    plan, network = case.plan, case.plan.network
    message = plan.batch * max(network.embedding, network.classes, *network.widths)
    if plan.steps > MOST_STEPS or message > MOST_NUMBERS:
        words = (
            f"the federation has {plan.steps} steps and messages of up to {message} numbers, which is too much to "
            "play back"
        )
        return (WHOLE.skipped(words),)
    pairs = {pair.party: pair for pair in reversed(case.pairs)}
    return play_back_checks(case, list(pairs.values()))


def _power(claim: Claim, checks: Sequence[CheckResult], law: VerticalLaw | None) -> CheckPower | None:
    """The smallest epsilon that the checks would have found, where all of them passed."""
    made = {check.name: check for check in checks if check.passed is not None}
    if any(check.passed is False for check in checks) or RELEASED not in made:
        return None
    # What is released must be held against the claim as a whole: noise on numbers, or labels.
    found = [made[name].detects for name in (PERSON_MOVE, CHANNEL) if name in made]
    known = [one for one in found if one is not None]
    # Both checks together are of one release where the noise is that of the labels, and then either finds it.
    if not known or (len(found) > 1 and (law is None or law.noised is not Noised.TARGETS)):
        return None
    words = (
        "the noise in the messages of all parties, people and batches is too small by the same factor, or the "
        "released labels are correct too often"
    )
    return CheckPower(detectable=max(claim.epsilon, min(known)), assumption=words)


def why_not(claim: Claim, design: str, *, frozen: bool) -> str:
    """Return why an audit of this design does not cover a claim; empty string if it does. ``frozen``: whether the
    bottom models are not trained.
    """
    adjacent = why_no_pair(claim, frozen=frozen)
    if adjacent:
        return f"the claim is about {claim.adjacency.phrase} neighbours, which cannot be built: {adjacent}"
    if design != "independent":
        if claim.unit is not Unit.LABEL or claim.observer != PASSIVE_PARTY:
            return "a one-run audit covers only claims about one label against a passive party"
        return ""
    if claim.unit is Unit.LABEL and claim.observer in (PASSIVE_PARTY, FINAL_MODEL):
        return ""
    if claim.unit in (Unit.SAMPLE, Unit.REPORT) and claim.observer == ACTIVE_PARTY:
        return ""
    return f"no neighbouring inputs are known for one {claim.unit.value} and the observer {claim.observer}"


def _restricted(
    task: VerticalTask, plan: VerticalPlan, settings: VerticalAuditSpec
) -> tuple[VerticalTask, VerticalPlan]:
    fewer = small_plan(plan, settings.people, settings.batch)
    return replace(task, people=task.people.chosen(torch.arange(fewer.people))), fewer
