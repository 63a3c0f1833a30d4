"""The planned number of guesses: fixed by the claim, enough to reach it, near the best that could be chosen."""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.one_run import epsilon_from_guesses
from fedassay.audit.estimators.one_run_claim import best_of_guesses, enough_canaries, planned_guesses
from fedassay.audit.estimators.one_run_fdp import mu_from_guesses

CLAIM = {"epsilon": 1.0, "delta": 1e-5, "alpha": 0.05}


def proven(made, *, canaries, gaussian, rng, runs=40):
    """Mean bound of a mechanism with half of the claimed noise, when so many are guessed."""
    mu, found = 2 * mu_from_epsilon(1.0, 1e-5), []
    for _ in range(runs):
        coins = rng.integers(2, size=canaries) == 1
        order = np.argsort(rng.normal(size=canaries) + mu * coins)
        right = int(coins[order[canaries - made // 2 :]].sum() + (~coins[order[: made - made // 2]]).sum())
        if gaussian:
            found.append(epsilon_from_mu(mu_from_guesses(right, made, canaries, alpha=0.05), 1e-5))
        else:
            found.append(epsilon_from_guesses(right, made, canaries, delta=1e-5, alpha=0.05))
    return float(np.mean(found))


@pytest.mark.simulations
@pytest.mark.parametrize("gaussian", [False, True])
def test_the_plan_proves_nearly_as_much_as_the_best_number_would(gaussian):
    rng = np.random.default_rng(0)
    planned = planned_guesses(500, gaussian=gaussian, **CLAIM)
    others = {made: proven(made, canaries=500, gaussian=gaussian, rng=rng) for made in (10, 25, 50, 100, 200, 500)}
    assert proven(planned, canaries=500, gaussian=gaussian, rng=rng) > 0.85 * max(others.values())
    assert proven(planned, canaries=500, gaussian=gaussian, rng=rng) > 1.5 * min(others.values())


def test_guesses_without_an_error_reach_the_claim_where_any_number_would():
    # 200 guesses, all right, prove 3.7 at alpha .01; a claim of 4 could never be refuted by them.
    made = planned_guesses(1000, epsilon=4.0, delta=1e-5, alpha=0.01)
    assert made == 300
    assert (
        epsilon_from_guesses(made, made, 1000, delta=1e-5, alpha=0.01)
        > 4.0
        > epsilon_from_guesses(200, 200, 1000, delta=1e-5, alpha=0.01)
    )


@pytest.mark.simulations
@pytest.mark.parametrize(("gaussian", "made"), [(False, 70), (True, 100)])
def test_aimed_at_all_of_the_noise_the_plan_is_for_the_largest_bound_on_a_true_claim(gaussian, made):
    claim = {"epsilon": 4.0, "delta": 1e-5, "alpha": 0.05, "gaussian": gaussian}
    assert planned_guesses(1000, noise=1.0, **claim) == made
    # Without an error, 70 guesses would not refute it; half the noise is the default.
    assert planned_guesses(1000, **claim) == planned_guesses(1000, noise=0.5, **claim) == 200


def test_the_number_of_canaries_that_is_stated_has_the_power_and_the_next_smaller_one_lacks_it():
    claim = Claim.stated(1.0, 1e-5)
    assert enough_canaries(claim, 2.6, alpha=0.05).startswith("about 4,000 canaries of one run would be enough")
    small, stated = (best_of_guesses(claim, canaries, alpha=0.05).detectable for canaries in (3200, 4000))
    assert stated <= 2.6 < small
    # Over 100,000 canaries are needed for what is hardly more than the claim.
    assert enough_canaries(claim, 1.5, alpha=0.05).startswith("even 100,000 canaries of one run would not be enough")


@pytest.mark.parametrize("noise", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_of_noise_lies_between_0_and_1(noise):
    with pytest.raises(ValueError, match=r"noise .*must lie in \(0, 1\], got"):
        planned_guesses(100, noise=noise, **CLAIM)
