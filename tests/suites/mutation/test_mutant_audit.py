"""A audit refutes what is broken, spares what is not, and would notice if it were the other way round."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.observer import AGGREGATE
from fedassay.defenses.controls.fault import Mutant
from fedassay.suites.mutation.mutant_audit import LEAST, audit_broken, audit_correct, plan_mutant_audit

SEEDS = range(5)


def gaussian(noise):
    return lambda arm, n, rng: arm + noise * rng.standard_normal(n)


@pytest.fixture
def halved():
    """A Gaussian release of mu 1, and one with half its noise."""
    return Mutant(
        claim=Claim.stated(4.3772, 1e-5, mu=1.0, unit="client", adjacency="add_remove", observer=AGGREGATE),
        correct=gaussian(1.0),
        broken=gaussian(0.5),
        scores=(lambda sums: np.asarray(sums),),
        witness="1 or 0",
    )


@pytest.fixture
def planned():
    """The audit of a mutant, as the suite plans it."""
    return lambda mutant: plan_mutant_audit(mutant, name="m", pilot=20_000, power=0.99, alpha=0.001, limit=10**6)


def audited(audit):
    return (
        audit_broken(audit, name="m", seeds=SEEDS, alpha=0.001),
        audit_correct(audit, name="m", seeds=SEEDS, alpha=0.001),
    )


def test_the_broken_version_is_refuted_by_the_planned_trials_and_the_correct_version_is_not(halved, planned):
    audit = planned(halved)
    broken, correct = audited(audit)
    assert audit.visible
    assert broken.decided.verdict is Verdict.REFUTED
    # At power .99, fewer than three of five has a chance of 1e-5.
    assert broken.refuted >= 3
    assert (correct.refuted, correct.decided.verdict) == (0, Verdict.NOT_REFUTED)


def test_the_plan_counts_trials_and_the_correct_version_has_enough_to_be_accused(halved, planned):
    audit = planned(halved)
    broken, correct = audited(audit)
    assert {finding.measurement.n0 for finding in broken.each} == {audit.plan.trials}
    assert broken.decided.measurement.n0 == 5 * audit.plan.trials
    assert {finding.measurement.n0 for finding in correct.each} == {max(LEAST, audit.plan.trials)}


def test_a_correct_version_that_is_broken_too_is_accused(halved, planned):
    broken, correct = audited(planned(replace(halved, correct=halved.broken)))
    assert broken.decided.verdict is correct.decided.verdict is Verdict.REFUTED


def test_a_mutant_without_a_bug_is_not_visible_and_not_refuted(halved, planned):
    audit = planned(replace(halved, broken=halved.correct))
    broken, correct = audited(audit)
    assert not audit.visible
    assert audit.plan.trials == LEAST
    assert (broken.refuted, correct.refuted) == (0, 0)
    assert broken.decided.verdict is Verdict.NOT_REFUTED


def test_the_score_that_needs_the_fewest_trials_is_taken(halved, planned):
    def noise(sums):
        return np.sin(1e6 * sums)

    audit = planned(replace(halved, scores=(noise, *halved.scores)))
    assert audit.score is halved.scores[0]


def test_a_plan_at_power_099_refutes_so_often(halved, planned):
    """200 seeds: at power .99 or more, fewer than 190 has a chance below 1e-4."""
    audit = planned(halved)
    assert audit_broken(audit, name="power", seeds=range(200), alpha=0.001).refuted >= 190


@pytest.mark.simulations
def test_a_mechanism_at_its_claim_is_accused_no_oftener_than_alpha(halved, planned):
    """400 audits of one seed at alpha .05: more than 39 has a chance below 1e-4 if alpha holds."""
    audit = planned(halved)
    accused = [audit_correct(audit, name="null", seeds=[seed], alpha=0.05).refuted for seed in range(400)]
    assert sum(accused) <= 39
