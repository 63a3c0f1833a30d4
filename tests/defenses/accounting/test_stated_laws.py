"""Claims that a noise law states: the epsilons of the accountant, the curve, and laws that contradict an epsilon."""

import math

import pytest
from fedassay.audit.gaussian import epsilon_from_mu
from fedassay.defenses.accounting.stated_laws import claim_from_noise, claim_from_rho


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
