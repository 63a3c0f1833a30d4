"""What the first rounds of a claim spend: the whole claim at its end, and as if calibrated to stop there before."""

import math

import pytest
from fedassay.audit.claim import Claim
from fedassay.defenses.accounting.gaussian import SampledGaussian, gaussian_curve, gaussian_noise
from fedassay.defenses.accounting.spending import gaussian_spending, pure_spending, sampled_spending

DELTA = 1e-5


def claim_of(rounds, delta=DELTA, mu=None):
    return Claim.stated(epsilon=None if mu else 8.0, delta=delta, mu=mu, rounds=rounds)


def test_steps_that_every_sample_enters_spend_what_one_gaussian_does():
    """Two unsampled steps a round: five rounds are one release at sigma / sqrt(10)."""
    claim = claim_of(10)
    spent = sampled_spending(claim, SampledGaussian(sigma=4.0, rate=1.0, steps=20))[claim.claim_id]
    (whole,) = gaussian_spending(claim_of(10, mu=math.sqrt(20) / 4.0)).values()
    assert spent(5) == pytest.approx(whole(5), rel=2e-3)
    assert spent(10) == pytest.approx(whole(10), rel=2e-3)


def test_steps_must_be_alike_in_all_rounds():
    with pytest.raises(ValueError, match="must be a multiple of the number of rounds, 3, got 20 steps"):
        sampled_spending(claim_of(3), SampledGaussian(sigma=4.0, rate=1.0, steps=20))


def test_the_noise_for_twenty_rounds_spends_by_the_fifth_what_it_was_calibrated_for_over_five():
    noise = gaussian_noise(epsilon=3.0, delta=DELTA, releases=5)
    (spent,) = gaussian_spending(claim_of(20, mu=gaussian_curve(noise=noise, releases=20).mu)).values()
    assert spent(5) == pytest.approx(3.0, abs=1e-6)


def test_a_claim_without_a_gaussian_curve_has_no_root_to_grow_by():
    with pytest.raises(ValueError, match="only for a claim with a Gaussian trade-off curve"):
        gaussian_spending(claim_of(20))


def test_pure_releases_add_up_at_delta_0_and_less_beyond_it():
    (summed,) = pure_spending(claim_of(20, delta=0.0), each=0.1, releases=2).values()
    assert [summed(rounds) for rounds in (1, 10, 20)] == pytest.approx([0.2, 2.0, 4.0])
    (composed,) = pure_spending(claim_of(20), each=0.1, releases=2).values()
    assert composed(1) <= 0.2
    assert composed(20) < 4.0
