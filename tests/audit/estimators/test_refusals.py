"""What an estimator refuses apart from levels and designs out of range, which the calibration tries on all of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low, upper_bound
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.estimators.hockey_stick import MechanismOutputs
from fedassay.audit.estimators.joint_point import best_bound
from fedassay.audit.estimators.likelihood_ratio import effect_z, laplace
from fedassay.audit.estimators.one_run_claim import planned_guesses
from fedassay.audit.estimators.one_run_fdp import mu_from_guesses, one_run_fdp, refuted
from fedassay.audit.estimators.one_shot import one_shot
from fedassay.audit.estimators.release_tests import (
    GaussianRelease,
    audit_release_tests,
)
from fedassay.audit.estimators.sequential import sequential
from fedassay.audit.estimators.z_test import z_test
from fedassay.audit.evidence import CandidateScores, Design, Guesses, MembershipScores, Projections, Setting
from fedassay.audit.mechanism.mechanism import ball_neighbours
from fedassay.audit.metrics import ScoresByRun, area_interval, joint_statement
from fedassay.audit.posterior import success_bound
from fedassay.audit.power import planned_looks
from fedassay.audit.threshold import FixedThreshold

LEVELS = {"delta": 1e-5, "alpha": 0.05}
AT = LEVELS | {"threshold": FixedThreshold(0.5)}
HUGE = np.full(100, 1e308)


def setting(design=Design.INDEPENDENT):
    return replace(Setting.claimed(Claim.stated(1.0)), design=design)


def scores(member, nonmember):
    return MembershipScores(member, nonmember, setting())


def rows(member, nonmember):
    return MechanismOutputs(np.array([member]).T, np.array([nonmember]).T, setting())


def cosines(*values):
    return CandidateScores(values, setting(Design.ONE_RUN))


def released(columns, rounds=1):
    """Runs of so many rounds, and a release of twenty; ``rounds`` of the setting of one side."""
    sides = [
        Projections(np.ones((4, columns)), np.ones((4, columns), bool), replace(setting(), rounds=one))
        for one in (rounds, 1)
    ]
    return audit_release_tests(*sides, GaussianRelease(sigma=1.0, rounds=20), [], **LEVELS, curve=None, epsilon=1.0)


REFUSED = [
    (lambda: upper_bound(0, 0, 0.05), "n must be >= 1, got 0"),
    (lambda: upper_bound(11, 10, 0.05), "errors must lie in 0..n for n trials, got 11 of 10"),
    (lambda: epsilon_low(1, -1, 10, 10, 1e-5, 0.05), "errors must lie in 0..n for n trials, got -1 of 10"),
    (lambda: epsilon_low(1, 1, 10, 10, 1.0, 0.05), "delta must lie in"),
    (lambda: mu_from_epsilon(math.inf, 1e-5), "epsilon must be finite, got inf"),
    (lambda: gaussian_dp(scores([1.0, 2.0], [0.0, 1.0]), **AT, epsilon=math.inf), "epsilon must be finite"),
    (lambda: sequential(rows([1.0, 2.0], [0.0]), **LEVELS), "equally many trials with and without .* got 2 and 1"),
    (lambda: sequential(rows([1.0, 1.0], [0.0, 0.0]), **LEVELS, epsilon=800.0), "epsilon must be at most 300"),
    (lambda: z_test(scores([1.0], [0.0, 1.0, 2.0]), **LEVELS), "at least two trials without and two with the canary"),
    (lambda: z_test(scores([1.0, 1.0], [0.0, 0.0]), **LEVELS), "deviation .*must be > 0 and finite, got 0.0"),
    (lambda: z_test(scores([1.0], [0.0]), **LEVELS, deviation=math.nan), "deviation .*must be > 0 and finite"),
    (lambda: z_test(scores(HUGE, -HUGE), **LEVELS, deviation=1.0), "must be finite, got inf"),
    (lambda: z_test(scores([1.0], [0.0]), delta=0.0, alpha=0.05, deviation=1.0), "delta must be > 0 for the z-test"),
    (lambda: MechanismOutputs(HUGE[:, None], -HUGE[:, None], setting()), "member must be at most 1e.300"),
    (lambda: one_shot(cosines(0.1), dimension=9, delta=1e-5), "at least two canaries, got dimension 9 and 1"),
    (lambda: one_shot(cosines(0.1, 0.2), dimension=0, delta=1e-5), "canaries of dimension >= 1"),
    (lambda: one_shot(cosines(0.1, 1.2), dimension=9, delta=1e-5), "cosines must lie in"),
    (lambda: one_run_fdp(Guesses(1, 2, 3, setting(Design.ONE_RUN)), delta=0.0, alpha=0.05), "delta must be > 0"),
    (lambda: mu_from_guesses(3, 2, 3, alpha=0.05), "got 3 right, 2 made, 3 canaries"),
    (lambda: mu_from_guesses(0.5, 2, 3, alpha=0.05), "right must be a whole number, got 0.5"),
    (lambda: refuted(1, 2, 3, mu=np.array([1.0, math.nan]), alpha=0.05), "mu must be >= 0, got"),
    (lambda: planned_guesses(1, epsilon=1.0, **LEVELS), "at least 2 canaries"),
    (lambda: best_bound([one_shot(cosines(0.1, 0.2), dimension=9, delta=1e-5)]), "of kind estimate"),
    (lambda: released(3, rounds=2), "the release's setting"),
    (lambda: released(3), "20 rounds"),
    (lambda: GaussianRelease(sigma=1.0, rounds=3, sigmas=(1.0, 2.0)), "each of the 3 rounds, got 2 and 0"),
    (lambda: GaussianRelease(sigma=1.0, rounds=2, rates=(0.5, 0.0)), "sigmas must be > 0 and finite, and rates in"),
    (lambda: laplace([1.0], [1.0], scale=0.0), "scale .*must be > 0 and finite, got 0"),
    (lambda: GaussianRelease(sigma=0.0), "must be"),
    (lambda: GaussianRelease(sigma=1.0, rate=0.0), "must be"),
    (lambda: GaussianRelease(sigma=1.0, rounds=0), "must be"),
    (lambda: ball_neighbours(0, radius=1.0), "dimension must be >= 1"),
    (lambda: ball_neighbours(3, radius=0.0), "radius must be > 0 and finite, got 0.0"),
    (lambda: ball_neighbours(3, radius="a"), "radius must be a number, got 'a'"),
    (lambda: ball_neighbours(3, radius=1.0, norm=3), "norm must be 1 .* or 2 .*, got 3"),
    (lambda: ball_neighbours(3, radius=1.0, directions=-1), "random directions >= 0, got 3 and -1"),
    (lambda: ball_neighbours(3, radius=1.0, adjacency="replace"), "adjacency must be replace_one"),
    (lambda: joint_statement(ScoresByRun.of(np.arange(200.0), np.arange(200.0)), 0.0), "rate must lie in"),
    (lambda: area_interval(ScoresByRun.of([1.0], [0.0]), 1.0), "level must lie in"),
    (lambda: ScoresByRun.of([], [1.0]), "member must not be empty"),
    (lambda: ScoresByRun.of([1.0, math.nan], [1.0]), "member must be finite, got 1 of 2"),
    (lambda: ScoresByRun.of([1.0], [0.0], [1], None), "together"),
    (lambda: ScoresByRun.of([1.0], [0.0], [1], [0.5]), "nonmember_runs must hold 1 whole numbers"),
    (lambda: success_bound(math.nan, epsilon=1.0), "kappa .*must lie in .0, 1., got nan"),
    (lambda: success_bound(0.1, epsilon=-1.0), "epsilon must be >= 0, got -1.0"),
    (lambda: planned_looks(1, 0.1), "must"),
    (lambda: planned_looks(100, 1.0), "must"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_an_estimator_cannot_read_is_refused_with_what_was_given(case):
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_scores_without_spread_or_number_have_no_effect_size():
    for member, nonmember in ((np.ones(5), np.zeros(5)), (np.ones(1), np.zeros(5)), (HUGE, -HUGE)):
        assert effect_z(member, nonmember, 1.0) is None
