"""Claims that a noise law states: the epsilons of the accountant, the curve, and laws that contradict an epsilon."""

import math
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.estimators.release_tests import BrokenRelease, GaussianRelease, simulated_release_points
from fedassay.audit.power import trials_needed
from fedassay.defenses.accounting.stated_laws import claim_from_accountant, claim_from_noise, claim_from_rho


def test_one_gaussian_release_has_its_exact_epsilon_and_curve():
    claim = claim_from_noise(2.0, delta=1e-5)
    assert claim.epsilon == pytest.approx(epsilon_from_mu(0.5, 1e-5), rel=2e-3)
    assert (claim.curve.mu, claim.unit.value, claim.adjacency.value) == (0.5, "sample", "add_remove")
    assert claim_from_noise(4.0, delta=1e-5, steps=4).curve.mu == 0.5


def test_replace_one_moves_a_sum_twice_as_far():
    claim = claim_from_noise(2.0, delta=1e-5, adjacency="replace_one")
    assert claim.curve.mu == 1.0
    assert claim.epsilon == pytest.approx(epsilon_from_mu(1.0, 1e-5), rel=2e-3)


def test_sampling_lowers_epsilon_and_the_curve_implies_it():
    whole, sampled = (claim_from_noise(1.0, delta=1e-5, sampling_rate=rate, steps=10) for rate in (1.0, 0.01))
    assert sampled.epsilon < 0.5 * whole.epsilon
    assert sampled.curve_shortfall() < 1e-6


def test_rho_is_half_of_mu_squared_at_most():
    claim = claim_from_rho(0.125, delta=1e-5, unit="client")
    assert epsilon_from_mu(0.5, 1e-5) < claim.epsilon < 1.3 * epsilon_from_mu(0.5, 1e-5)


def test_a_larger_epsilon_may_be_claimed_and_a_smaller_one_contradicts_the_law():
    assert claim_from_noise(2.0, delta=1e-5, epsilon=9.0).epsilon == 9.0
    with pytest.raises(ValueError, match=r"implies epsilon .*, which is more than the stated"):
        claim_from_noise(2.0, delta=1e-5, epsilon=0.5)
    with pytest.raises(ValueError, match=r"implies epsilon .*, which is more than the stated"):
        claim_from_rho(1.0, delta=1e-5, epsilon=1.0)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: claim_from_noise(0.0, delta=1e-5), "noise_multiplier must be a number > 0, got 0.0"),
        (lambda: claim_from_noise(1.0, delta=0.0), "delta"),
        (lambda: claim_from_noise(1.0, delta=1e-5, sampling_rate=2.0), r"sampling_rate must be in \(0, 1\], got 2.0"),
        (lambda: claim_from_noise(1.0, delta=1e-5, epsilon="4"), "epsilon must be a number > 0, got '4'"),
        (lambda: claim_from_noise("1", delta=1e-5), "noise_multiplier must be a number > 0, got '1'"),
        (lambda: claim_from_noise(1.0, delta=1e-5, steps=0), "steps must be >= 1, got 0"),
        (lambda: claim_from_rho(-1.0, delta=1e-5), "rho must be a number > 0"),
        (lambda: claim_from_rho(math.inf, delta=1e-5), "rho must be a number > 0, got inf"),
    ],
)
def test_laws_out_of_range_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_a_history_of_one_law_is_the_claim_of_its_noise():
    claim = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 24)]), delta=1e-5)
    assert claim == claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)


def test_a_history_of_several_laws_composes_them():
    same = claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)
    split = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 14), (1.0, 0.1, 10)]), delta=1e-5)
    assert split.epsilon == pytest.approx(same.epsilon, rel=1e-3)
    assert split.curve_shortfall() < 1e-6
    quieter = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 14), (0.8, 0.1, 10)]), delta=1e-5)
    assert quieter.epsilon > 1.1 * split.epsilon


def test_the_ledger_of_another_library_states_the_same_claim():
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0)), 24
    )
    accountant = RdpAccountant().compose(event)
    expected = claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)
    for given in (accountant, event):
        claim = claim_from_accountant(given, delta=1e-5)
        assert claim.epsilon == pytest.approx(expected.epsilon, rel=1e-6)
        assert claim.curve == expected.curve


def test_the_curve_refutes_half_of_the_noise_from_far_fewer_runs_than_epsilon():
    claim = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 24)]), delta=1e-5)
    release = GaussianRelease(sigma=1.0, rate=0.1, rounds=24)
    points = simulated_release_points(release, BrokenRelease(noise=0.5), rng=np.random.default_rng(0))
    runs = [
        trials_needed(points, curve=curve, epsilon=claim.epsilon, delta=1e-5, alpha=0.05).trials
        for curve in (claim.curve, None)
    ]
    # A reference audit of 24 steps reports 79 and 4,829, at a sampling rate that it does not name.
    assert 60 < runs[0] < 110
    assert 3_000 < runs[1] < 9_000


@pytest.mark.parametrize(
    ("accountant", "error", "words"),
    [
        (SimpleNamespace(history=[]), ValueError, "history is empty: no step was accounted"),
        (SimpleNamespace(history=[(1.0, 0.1)]), ValueError, "history must hold"),
        (SimpleNamespace(history=[(0.0, 0.1, 3)]), ValueError, "noise multiplier of the history must be a number > 0"),
        (SimpleNamespace(history=[(1.0, 1.5, 3)]), ValueError, r"sampling rate of the history must be in \(0, 1\]"),
        ("prv", TypeError, "accountant must have a history"),
    ],
)
def test_an_accountant_without_a_usable_history_is_refused(accountant, error, words):
    with pytest.raises(error, match=words):
        claim_from_accountant(accountant, delta=1e-5)
