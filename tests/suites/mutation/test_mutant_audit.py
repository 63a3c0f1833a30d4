"""A contest refutes what is broken, spares what is not, and would notice if it were the other way round."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.finding import Verdict
from fedassay.audit.observer import AGGREGATE
from fedassay.defenses.controls.mutant import Mutant, mechanism_claim
from fedassay.suites.mutation.mutant_audit import LEAST, fight_broken, fight_correct, prepare_contest

SEEDS = range(5)


def gaussian(noise):
    return lambda world, n, rng: world + noise * rng.standard_normal(n)


@pytest.fixture
def halved():
    """A Gaussian release of mu 1, and one with half its noise."""
    return Mutant(
        claim=mechanism_claim(
            epsilon=4.3772,
            delta=1e-5,
            unit=Unit.CLIENT,
            adjacency=Adjacency.ADD_REMOVE,
            observer=AGGREGATE,
            mechanism="Gaussian",
            source="",
            curve=GaussianCurve(1.0),
        ),
        correct=gaussian(1.0),
        broken=gaussian(0.5),
        scores=(lambda sums: np.asarray(sums),),
        witness="1 or 0",
    )


@pytest.fixture
def planned():
    """The contest of a mutant, as the suite plans it."""
    return lambda mutant: prepare_contest(mutant, name="m", pilot=20_000, power=0.99, alpha=0.001, limit=10**6)


def fought(contest):
    return (
        fight_broken(contest, name="m", seeds=SEEDS, alpha=0.001),
        fight_correct(contest, name="m", seeds=SEEDS, alpha=0.001),
    )


def test_the_broken_edition_is_refuted_by_the_planned_trials_and_the_twin_is_not(halved, planned):
    contest = planned(halved)
    broken, correct = fought(contest)
    assert contest.visible
    assert broken.decided.verdict is Verdict.REFUTED
    # At power .99, fewer than three of five has a chance of 1e-5.
    assert broken.refuted >= 3
    assert (correct.refuted, correct.decided.verdict) == (0, Verdict.NOT_REFUTED)


def test_the_plan_counts_trials_and_the_twin_has_enough_to_be_accused(halved, planned):
    contest = planned(halved)
    broken, correct = fought(contest)
    assert {finding.measurement.n0 for finding in broken.each} == {contest.plan.trials}
    assert broken.decided.measurement.n0 == 5 * contest.plan.trials
    assert {finding.measurement.n0 for finding in correct.each} == {max(LEAST, contest.plan.trials)}


def test_a_twin_that_is_broken_too_is_accused(halved, planned):
    broken, correct = fought(planned(replace(halved, correct=halved.broken)))
    assert broken.decided.verdict is correct.decided.verdict is Verdict.REFUTED


def test_a_mutant_without_a_bug_is_not_visible_and_not_refuted(halved, planned):
    contest = planned(replace(halved, broken=halved.correct))
    broken, correct = fought(contest)
    assert not contest.visible
    assert contest.plan.trials == LEAST
    assert (broken.refuted, correct.refuted) == (0, 0)
    assert broken.decided.verdict is Verdict.NOT_REFUTED


def test_the_score_that_needs_the_fewest_trials_is_taken(halved, planned):
    def noise(sums):
        return np.sin(1e6 * sums)

    contest = planned(replace(halved, scores=(noise, *halved.scores)))
    assert contest.score is halved.scores[0]


def test_a_plan_at_power_099_refutes_so_often(halved, planned):
    """200 seeds: at power .99 or more, fewer than 190 has a chance below 1e-4."""
    contest = planned(halved)
    assert fight_broken(contest, name="power", seeds=range(200), alpha=0.001).refuted >= 190


def test_a_mechanism_at_its_claim_is_accused_no_oftener_than_alpha(halved, planned):
    """400 contests of one seed at alpha .05: more than 39 has a chance below 1e-4 if alpha holds."""
    contest = planned(halved)
    accused = [fight_correct(contest, name="null", seeds=[seed], alpha=0.05).refuted for seed in range(400)]
    assert sum(accused) <= 39
