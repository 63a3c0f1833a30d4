"""The linear score: optimal for Gaussian groups, useless where nothing differs, and blind to constants."""

import numpy as np
import pytest
from fedassay.suites.vertical.scores import discriminant, shrinkage
from scipy.stats import norm
from sklearn.covariance import ledoit_wolf_shrinkage


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


def apart(numbers, runs, rng, length=3.0):
    """How many standard deviations new runs of the two groups are apart by the score; the best is ``length``."""
    shift = np.full(numbers, length / np.sqrt(numbers))
    taught = [rng.standard_normal((runs, numbers)) + arm * shift for arm in (0, 1)]
    score = discriminant(*taught)
    out, within = (score(rng.standard_normal((4000, numbers)) + arm * shift) for arm in (0, 1))
    return (within.mean() - out.mean()) / out.std()


@pytest.mark.simulations
@pytest.mark.parametrize("numbers", [100, 380, 420, 2000])
def test_more_numbers_than_runs_cost_little_beyond_what_the_means_do_not_show(numbers):
    """Without any covariance, the means of 200 + 200 runs are known up to noise: the best known is length^2 / root."""
    found = apart(numbers, 200, np.random.default_rng(3))
    by_means = 9 / np.sqrt(9 + numbers * 2 / 200)
    assert found > 0.85 * by_means


def test_a_common_noise_is_taken_out_with_more_numbers_than_runs():
    """One number shows the shift under a noise that 600 others show too: without them it is 1 apart."""
    rng = np.random.default_rng(4)

    def group(runs, arm):
        noise = rng.standard_normal((runs, 1))
        others = noise + 0.1 * rng.standard_normal((runs, 600))
        return np.column_stack([arm + noise + 0.1 * rng.standard_normal((runs, 1)), others])

    score = discriminant(group(150, 0), group(150, 1))
    out, within = score(group(2000, 0)), score(group(2000, 1))
    assert (within.mean() - out.mean()) / out.std() > 3


@pytest.mark.parametrize("numbers", [5, 40, 300])
def test_the_share_is_that_of_a_library(numbers):
    rng = np.random.default_rng(5)
    units = rng.standard_normal((80, numbers)) @ np.diag(np.linspace(0.5, 1.5, numbers))
    units -= units.mean(0)
    covariance = units.T @ units / len(units)
    assert shrinkage(units, float(np.square(covariance).sum())) == pytest.approx(
        ledoit_wolf_shrinkage(units, assume_centered=True)
    )
