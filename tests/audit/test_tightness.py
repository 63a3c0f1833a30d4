"""Means over 200 seeded repeats near the theory's limits: one-step Gaussian, sigma 1.081 (epsilon 4, delta 1e-5).

Ten thousand trials a world, thresholds fixed from the law. The z-test and the one-run estimators are held to theirs in
their own tests; ``benchmarks/tightness.py`` prints the whole table.
"""

import numpy as np
import pytest
from fedassay.audit.clopper_pearson import clopper_pearson
from fedassay.audit.gaussian import mu_from_epsilon
from fedassay.audit.gaussian_dp import gaussian_dp
from fedassay.audit.threshold import Fixed

MU = mu_from_epsilon(4, 1e-5)


@pytest.mark.parametrize(
    ("estimator", "threshold", "least", "limit"),
    [(clopper_pearson, MU / 2 + 2.46, 1.95, 2.00), (gaussian_dp, MU / 2, 3.70, 3.75)],
    ids=["clopper_pearson", "gaussian_dp"],
)
def test_ten_thousand_trials_come_near_the_limit(scores_of, estimator, threshold, least, limit):
    rng = np.random.default_rng(0)
    bounds = [
        estimator(
            scores_of(rng.normal(MU, 1, 10_000), rng.normal(0, 1, 10_000)),
            delta=1e-5,
            alpha=0.05,
            threshold=Fixed(threshold),
        ).epsilon_low
        for _ in range(200)
    ]
    assert least <= np.mean(bounds) < limit + 0.05
