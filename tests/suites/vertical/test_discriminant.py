"""The linear score: optimal for Gaussian groups, useless where nothing differs, and blind to constants."""

import numpy as np
from fedassay.suites.vertical.discriminant import discriminant
from scipy.stats import norm


def test_it_nears_the_best_score_of_two_gaussian_groups_whose_noise_is_correlated():
    rng = np.random.default_rng(1)
    root = np.array([[1.0, 0], [0.99, 0.14]])
    shift = np.array([0.3, 0.0])
    taught = [rng.standard_normal((2000, 2)) @ root.T + arm * shift for arm in (0, 1)]
    score = discriminant(*taught)
    out, within = (score(rng.standard_normal((20_000, 2)) @ root.T + arm * shift) for arm in (0, 1))
    best = np.sqrt(shift @ np.linalg.solve(root @ root.T, shift))
    found = (within.mean() - out.mean()) / out.std()
    # The difference of the two numbers has a small noise: a score by each number alone would find .3.
    assert best > 2
    assert found > 0.75 * best
    assert norm.cdf(found / 2) > 0.75


def test_numbers_that_never_vary_are_left_out():
    rng = np.random.default_rng(2)
    one, other = (np.column_stack([rng.standard_normal(50) + arm * 3, np.full(50, 1e6)]) for arm in (0, 1))
    score = discriminant(one, other)
    assert score(other).mean() > score(one).mean()
    still = np.full((5, 2), 3.0)
    assert len(set(discriminant(still, still)(still))) == 1
