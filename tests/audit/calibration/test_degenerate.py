"""Inputs at the edge of what is a number: a finite answer or a clear error, never NaN, infinity or an endless loop."""

import math
import warnings

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.estimators.hockey_stick import MechanismOutputs
from fedassay.audit.estimators.joint_beta import ErrorRatePosterior
from fedassay.audit.estimators.likelihood_ratio import effect_z
from fedassay.audit.estimators.one_run import one_run
from fedassay.audit.estimators.one_run_fdp import one_run_fdp
from fedassay.audit.estimators.pairwise_event import EventCounts, pairwise_event
from fedassay.audit.estimators.release_tests import BrokenRelease, GaussianRelease, ReleaseTest, audit_release_tests
from fedassay.audit.estimators.sequential import sequential
from fedassay.audit.estimators.z_test import z_test
from fedassay.audit.evidence import Design, Guesses, Projections
from fedassay.audit.threshold import FixedThreshold

LEVELS = {"delta": 1e-5, "alpha": 0.05}
HUGE = np.full(100, 1e308)


@pytest.fixture(autouse=True)
def _no_warning_is_swallowed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_an_infinite_epsilon_has_no_mu_and_is_not_searched_for_without_end(scores_of):
    with pytest.raises(ValueError, match="epsilon must be finite, got inf"):
        mu_from_epsilon(math.inf, 1e-5)
    some = scores_of([1.0, 2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="epsilon must be finite"):
        gaussian_dp(some, **LEVELS, threshold=FixedThreshold(0.5), epsilon=math.inf)
    with pytest.raises(ValueError, match="epsilon must be finite"):
        z_test(some, **LEVELS, epsilon=math.inf)


@pytest.mark.parametrize("estimator", [one_run, one_run_fdp])
@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
def test_one_run_refuses_a_claim_that_is_no_epsilon(setting_of, estimator, epsilon):
    with pytest.raises(ValueError, match="epsilon must be >= 0 and finite"):
        estimator(Guesses(3, 4, 5, setting_of(design=Design.ONE_RUN)), **LEVELS, epsilon=epsilon)


def test_a_claim_that_is_no_epsilon_is_refused_beside_a_curve_too(setting_of):
    side = Projections(np.ones((9, 1)), np.ones((9, 1), dtype=bool), setting_of(rounds=1))
    test = ReleaseTest(broken=BrokenRelease(noise=0.5), threshold=0.0)
    with pytest.raises(ValueError, match="epsilon must be >= 0 and finite, got -1"):
        audit_release_tests(side, side, GaussianRelease(sigma=1.0), [test], **LEVELS, curve=None, epsilon=-1.0)


def test_counts_are_whole_numbers(setting_of):
    one_run_setting = setting_of(design=Design.ONE_RUN)
    for counts, name in [((1.5, 2, 3), "right"), ((1, 2.5, 3), "made"), ((1, 2, 3.5), "canaries")]:
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got"):
            Guesses(*counts, one_run_setting)
    assert isinstance(Guesses(np.float32(1), np.int64(2), 3.0, one_run_setting).right, int)
    for counts in ({"hits_in": 1.5}, {"n1": 2.5}, {"n0": math.inf}):
        with pytest.raises(ValueError, match="must be a whole number, got"):
            EventCounts(**({"hits_in": 1, "n1": 2, "hits_out": 0, "n0": 2, "setting": setting_of()} | counts))
    counts = EventCounts(hits_in=np.int64(9), n1=np.float64(9), hits_out=0, n0=9, setting=setting_of())
    assert pairwise_event(counts, **LEVELS).n1 == 9


def test_the_upper_bound_is_the_trivial_one_where_its_inverse_does_not_converge():
    # betainccinv gives NaN for some of these; 1 holds always.
    for alpha in (1e-280, 1e-300, 1e-305):
        bounds = upper_bound(np.arange(501), 500, alpha)
        assert np.all((bounds > np.arange(501) / 500) | (bounds == 1))
        assert np.all(bounds <= 1)


def test_a_quadrature_gives_no_end_that_it_cannot_see():
    # At 1e-300 it gave (.85, 78), the edges of what it integrates over.
    perfect = ErrorRatePosterior(true_in=100, true_out=100, false_in=0, false_out=0)
    low, high = perfect.interval(delta=1e-5, alpha=1e-12)
    assert 0 < low < perfect.interval(delta=1e-5, alpha=1e-6)[0] < high < math.inf
    with pytest.raises(ValueError, match=r"alpha must lie in \[1e-12, 1\)"):
        perfect.interval(delta=1e-5, alpha=1e-300)


def test_stakes_that_are_no_numbers_are_refused(scores_of):
    some = scores_of([1.0, 1.0], [0.0, 0.0])
    assert sequential(some, **LEVELS, threshold=FixedThreshold(0.5), epsilon=300.0).epsilon_low == 0
    with pytest.raises(ValueError, match="epsilon must be at most 300"):
        sequential(some, **LEVELS, threshold=FixedThreshold(0.5), epsilon=800.0)


def test_scores_whose_squares_are_no_numbers_are_reported_without_a_warning(scores_of, setting_of):
    assert effect_z(HUGE, -HUGE, 1.0) is None
    with pytest.raises(ValueError, match=r"deviation .*must be > 0 and finite, got inf"):
        z_test(scores_of(HUGE, -HUGE), **LEVELS)
    with pytest.raises(ValueError, match=r"the mean scores, in standard deviations of 1\.0, must be finite, got inf"):
        z_test(scores_of(HUGE, -HUGE), **LEVELS, deviation=1.0)
    with pytest.raises(ValueError, match=r"member must be at most 1e\+300 in absolute value, got 1e\+308"):
        MechanismOutputs(HUGE[:, None], -HUGE[:, None], setting_of())
