"""Means over 200 seeded repeats near the theory's limits: one-step Gaussian, sigma 1.081 (epsilon 4, delta 1e-5).

Ten thousand trials per arm, or one run with a thousand Dirac canaries; thresholds and numbers of guesses are the
planners'. ``benchmarks/tightness.py`` prints the whole table.
"""

from functools import lru_cache, partial

import numpy as np
import pytest
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.estimators.one_run import epsilon_from_guesses
from fedassay.audit.estimators.one_run_claim import planned_guesses
from fedassay.audit.estimators.one_run_fdp import mu_from_guesses
from fedassay.audit.estimators.z_test import z_test
from fedassay.audit.threshold import FixedThreshold

REPEATS, LEVELS = 200, {"delta": 1e-5, "alpha": 0.05}
MU = mu_from_epsilon(4, 1e-5)
# The threshold with the largest expected bound at 10,000 trials, as benchmarks/tightness.py computes it.
CUT = MU / 2 - 2.5


@pytest.mark.parametrize(
    ("estimator", "least", "limit"),
    [
        (partial(clopper_pearson, threshold=FixedThreshold(CUT)), 1.95, 2.00),
        # The rates of a Gaussian say most where both errors are as frequent.
        (partial(gaussian_dp, threshold=FixedThreshold(MU / 2)), 3.70, 3.75),
        (partial(z_test, deviation=1.0), 3.83, 3.88),
    ],
    ids=["clopper_pearson", "gaussian_dp", "z_test"],
)
def test_ten_thousand_trials_come_near_the_limit(scores_of, estimator, least, limit):
    rng = np.random.default_rng(0)
    bounds = [
        estimator(scores_of(rng.normal(MU, 1, 10_000), rng.normal(0, 1, 10_000)), **LEVELS).epsilon_low
        for _ in range(REPEATS)
    ]
    assert least <= np.mean(bounds) < limit + 0.05


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("gaussian", "least", "limit"), [(False, 1.5, 1.55), (True, 2.2, 2.32)], ids=["one_run", "one_run_fdp"]
)
def test_one_run_of_a_thousand_canaries_comes_near_the_limit(gaussian, least, limit):
    made = planned_guesses(1000, epsilon=4.0, noise=1.0, gaussian=gaussian, **LEVELS)
    rng = np.random.default_rng(0)
    coins = rng.random((REPEATS, 1000)) < 0.5
    order = np.argsort(rng.normal(size=coins.shape) + MU * coins, axis=1)
    held = np.take_along_axis(coins, order, axis=1)
    right = held[:, -(made // 2) :].sum(axis=1) + (~held[:, : made // 2]).sum(axis=1)

    @lru_cache
    def bound(count):
        if gaussian:
            return epsilon_from_mu(mu_from_guesses(count, made, 1000, alpha=0.05), 1e-5)
        return epsilon_from_guesses(count, made, 1000, **LEVELS)

    assert least <= np.mean([bound(int(count)) for count in right]) < limit + 0.1
