"""Mutants of transfers: planned trials refute every broken version on neighbouring votes, and no correct one."""

import dataclasses

import numpy as np
import pytest
from fedassay.audit.check import ANSWERED
from fedassay.audit.finding import Verdict
from fedassay.defenses.controls.transfer import ControlVotesNoiseOnce
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.suites.config.part_listing import control_kind
from fedassay.suites.mutation.mutant_audit import audit_broken, audit_correct, plan_mutant_audit
from fedassay.suites.mutation.mutants import build_mutant, known_mutants, versions
from fedassay.suites.mutation.vote_mutant import EPSILON, vote_versions

BY_CHECKS = {"control_votes_late_bare", "control_votes_unanimous_bare"}
"""Bugs that four queries and 50 teachers do not show in trials."""
TRANSFERS = [name for name, kind in known_mutants().items() if kind == "transfer"]


def planned(mutant):
    return plan_mutant_audit(mutant, name="m", pilot=20_000, power=0.99, alpha=0.001, limit=100_000)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "control_votes_noise_once" else pytest.mark.simulations)
        for name in TRANSFERS
        if name not in BY_CHECKS
    ],
)
def test_planned_trials_refute_the_broken_version_and_not_the_correct_one(name):
    audit = planned(build_mutant(name))
    assert audit.visible
    broken = audit_broken(audit, name=name, seeds=range(3), alpha=0.001)
    correct = audit_correct(audit, name=name, seeds=range(3), alpha=0.001)
    assert broken.decided.verdict is Verdict.REFUTED
    assert correct.refuted == 0
    # Trials that are planned for a gross bug may be a weak test of the claim.
    assert correct.decided.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED)


@pytest.mark.simulations
def test_a_version_without_a_bug_is_found_no_trials():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class NoBug(ControlVotesNoiseOnce):
        def prepare(self, plan):
            return GNMax(epsilon=self.epsilon, delta=self.delta).prepare(plan)

    audit = planned(vote_versions(NoBug()).mutant())
    assert not audit.visible
    assert audit_broken(audit, name="none", seeds=range(2), alpha=0.001).decided.verdict is Verdict.NOT_REFUTED


def test_both_versions_state_the_claim_of_the_correct_defense_at_a_budget_that_trials_can_show():
    both = versions("control_votes_noise_once")
    assert {claim.epsilon for claim in (*both.correct.claims, *both.broken.claims)} == {EPSILON}


@pytest.mark.parametrize(
    "name", [*sorted(BY_CHECKS), pytest.param("control_votes_check_unpaid", marks=pytest.mark.simulations)]
)
def test_answers_without_noise_are_found_by_the_check_and_those_of_the_correct_version_pass(name):
    (broken,), (correct,) = (versions(name).checks(broken=one, trials=False) for one in (True, False))
    assert (broken.name, broken.passed, correct.passed) == (ANSWERED, False, True)


def test_the_first_arm_is_the_input_without_the_vote():
    mutant = build_mutant("control_votes_noise_once")
    scores = [mutant.scores[0](mutant.broken(arm, 200, np.random.default_rng(0))) for arm in (0, 1)]
    assert np.mean(scores[1]) > np.mean(scores[0])
    assert control_kind(ControlVotesNoiseOnce) == "transfer"
