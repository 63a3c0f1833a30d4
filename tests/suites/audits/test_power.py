"""How broken a mechanism must be before a planned audit refutes it, and where one test alone is blind."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.claim import Unit
from fedassay.audit.curve import ProfileCurve, mu_from_epsilon
from fedassay.audit.estimators.release_tests import (
    BrokenRelease,
    GaussianRelease,
)
from fedassay.audit.finding import weak_beyond
from fedassay.audit.observer import UPLOADS
from fedassay.audit.power import gaussian_points, trials_needed
from fedassay.defenses.accounting.gaussian import SampledGaussian, calibrate_sampled_gaussian
from fedassay.suites.audits.power import (
    designed_tests,
    detectable_epsilon,
    enough_replicas,
    refutes,
    replicas_needed,
    strong_replicas,
)
from fedassay.suites.config.tables.suite import AuditSpec
from scipy.stats import norm
from toy_claim import toy_claim

ALPHA = 0.002
"""The share of one of quick's five claims."""
N = 1000


@pytest.fixture(scope="module")
def lot_sampled():
    """The claim and law of quick's dp_sgd: rate .1, 20 steps, epsilon 4."""
    mechanism = calibrate_sampled_gaussian(epsilon=4.0, delta=1e-5, rate=0.1, steps=20)
    claim = toy_claim(unit=Unit.SAMPLE, observer=UPLOADS, curve=mechanism.curve(4.0))
    return claim, GaussianRelease(sigma=mechanism.sigma, rate=0.1, steps=1, rounds=20)


@pytest.fixture(scope="module")
def power_of(lot_sampled):
    """(tests, what is true of the noise or the row) -> chance to refute at quick's numbers."""
    claim, release = lot_sampled
    return lambda tests, **truth: refutes(BrokenRelease(**truth), claim, release, tests, n=N, alpha=ALPHA)


@pytest.fixture(scope="module")
def designed(lot_sampled):
    """The tests that quick registers."""
    return designed_tests(*lot_sampled, AuditSpec(), n=N)


@pytest.mark.parametrize("truth", [{"noise": share} for share in (0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)])
def test_together_they_cover_one_anothers(power_of, designed, truth):
    assert power_of(designed, **truth) > 0.99


@pytest.mark.parametrize("row", [3.0, 10.0, 30.0])
def test_a_missing_clip_is_seen(power_of, designed, row):
    assert power_of(designed, row=row) > 0.99


def test_a_correct_mechanism_is_refuted_no_oftener_than_alpha(power_of, designed):
    assert power_of(designed, noise=1.0) <= ALPHA


@pytest.mark.simulations
def test_what_is_detectable_comes_down_to_the_claim_as_replicas_grow(lot_sampled):
    claim, release = lot_sampled
    found = [
        detectable_epsilon(claim, release, designed_tests(claim, release, AuditSpec(), n=n), n=n, alpha=ALPHA)
        for n in (200, 1000, 4000, 16000)
    ]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 4
    assert claim.epsilon < found[-1] < 6


@pytest.mark.parametrize(("n", "share", "too_little"), [(1400, 0.65, 0.7), (1600, 0.7, 0.75)])
def test_what_is_detectable_is_the_least_violation_that_is_refuted_nine_times_in_ten(lot_sampled, n, share, too_little):
    claim, release = lot_sampled
    tests = designed_tests(claim, release, AuditSpec(), n=n)
    chances = [
        refutes(BrokenRelease(noise=part), claim, release, tests, n=n, alpha=ALPHA) for part in (share, too_little)
    ]
    assert chances[0] >= 0.9 > chances[1]
    twin = SampledGaussian(sigma=share * release.sigma, rate=0.1, steps=20)
    assert detectable_epsilon(claim, release, tests, n=n, alpha=ALPHA) == twin.epsilon(1e-5)


def test_too_few_replicas_detect_nothing(lot_sampled):
    claim, release = lot_sampled
    tests = designed_tests(claim, release, AuditSpec(), n=5)
    assert detectable_epsilon(claim, release, tests, n=5, alpha=ALPHA) is None


def test_the_number_of_runs_that_would_do_is_the_least_on_its_grid_that_is_no_weak_test(lot_sampled):
    claim, release = lot_sampled
    found = strong_replicas(claim, release, AuditSpec(), made=200, alpha=ALPHA)
    tried = [math.ceil(200 * 1.1**step) for step in range(1, 40)]
    least, before = found, tried[tried.index(found) - 1]
    shown = [
        detectable_epsilon(claim, release, designed_tests(claim, release, AuditSpec(), n=n), n=n, alpha=ALPHA)
        for n in (least, before)
    ]
    assert shown[0] <= weak_beyond(claim.epsilon) < (shown[1] or math.inf)


def test_the_suite_names_the_violations_that_are_looked_for(lot_sampled):
    tests = designed_tests(*lot_sampled, AuditSpec(noise_shares=(0.9, 0.3), canary_norm=7.0), n=N)
    assert [test.broken for test in tests] == [
        BrokenRelease(noise=0.9),
        BrokenRelease(noise=0.3),
        BrokenRelease(row=7.0),
    ]


def test_one_more_share_leaves_the_thresholds_before_it_alone(lot_sampled, designed):
    more = designed_tests(*lot_sampled, AuditSpec(noise_shares=(0.8, 0.5, 0.1, 0.05)), n=N)
    assert more[:3] == designed[:3]


def test_replicas_needed_of_a_sampled_mechanism_are_those_at_which_its_own_test_reaches_the_power(lot_sampled):
    claim, release = lot_sampled
    needed = replicas_needed(claim, release, share=0.5, alpha=ALPHA)
    assert list(needed) == ["trade-off curve", "epsilon alone", "e-process"]
    # One test at all of alpha, where the audit's designed tests share it.
    only = AuditSpec(noise_shares=(0.5,))
    n = needed["trade-off curve"]
    test = designed_tests(claim, release, only, n=n)[:1]
    assert refutes(BrokenRelease(noise=0.5), claim, release, test, n=n, alpha=ALPHA) == pytest.approx(0.9, abs=0.06)


def test_noise_that_is_all_there_is_out_of_reach(lot_sampled):
    claim, release = lot_sampled
    assert set(replicas_needed(claim, release, share=1.0, alpha=ALPHA, limit=10**5).values()) == {None}


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 0.0), (1.0, 0.0), (3.0, 1e-5), (1.0, 1e-5)])
def test_as_many_runs_as_are_enough_refute_twice_the_epsilon_in_nine_of_ten_audits(epsilon, delta):
    claim = toy_claim(unit=Unit.REPORT, observer=UPLOADS, epsilon=epsilon, delta=delta)
    # A fifth of the runs chooses the threshold.
    n = math.floor(0.8 * enough_replicas(claim, alpha=0.01, limit=10**6))
    rng, fixed = np.random.default_rng(0), {"delta": delta, "alpha": 0.01, "epsilon": epsilon}
    if delta:
        mu = mu_from_epsilon(2 * epsilon, delta)
        plan = trials_needed(gaussian_points(mu), curve=None, **fixed)
        error = norm.sf(plan.threshold), norm.cdf(plan.threshold - mu)
    else:
        error = (1 / (1 + math.exp(2 * epsilon)),) * 2
    fp, fn = (upper_bound(rng.binomial(n, one, 2000), n, 0.005) for one in error)
    refuted = fn < ProfileCurve((epsilon,), (delta,), (delta,)).fnr(fp)
    assert 0.88 < refuted.mean() < 0.99


def test_a_claim_that_the_limit_cannot_test_has_no_number_of_runs():
    claim = toy_claim(unit=Unit.REPORT, observer=UPLOADS, epsilon=8.0, delta=0.0)
    assert enough_replicas(claim, alpha=0.01, limit=2000) is None
    assert enough_replicas(claim, alpha=0.01, limit=10**6) > math.exp(8)


def test_equal_claims_are_searched_once(lot_sampled):
    claim, release = lot_sampled
    tests = designed_tests(claim, release, AuditSpec(), n=N)
    same = replace(claim), replace(release)
    assert designed_tests(*same, AuditSpec(), n=N) is tests
    assert designed_tests(*same, AuditSpec(), n=2 * N) is not tests
