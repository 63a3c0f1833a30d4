"""Samplers: every law against its probabilities, and the sum of discrete Gaussians against their convolution.

Chi-square at one in a million: eleven tests falsely alarm once in some 90,000 seeds, and these seeds are fixed.
"""

import numpy as np
import pytest
from fedassay.defenses.secure.integer_draws import (
    centred_binomial,
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    skellam,
)
from scipy import stats

N = 100_000
ALARM = 1e-6


def fits(drawn, values, chances):
    """Whether integers have these chances: chi-square over the values expected ten times, the rest in one cell."""
    expected = np.asarray(chances) * drawn.size
    common = expected >= 10
    counts = np.array([(drawn == value).sum() for value in np.asarray(values)[common]])
    observed = np.append(counts, drawn.size - counts.sum())
    wanted = np.append(expected[common], drawn.size - expected[common].sum())
    wanted[-1] = max(wanted[-1], 1e-3)
    if wanted[-1] < 10:  # Too rare a cell for chi-square: it is joined to its neighbour.
        observed, wanted = (np.append(cells[:-2], cells[-2:].sum()) for cells in (observed, wanted))
    statistic = np.square(observed - wanted) / wanted
    return stats.chi2.sf(statistic.sum(), len(observed) - 1) > ALARM


def gaussian_chances(values, variance):
    weights = np.exp(-np.square(values) / (2 * variance))
    return weights / weights.sum()


@pytest.mark.parametrize("variance", [1, 2, 9, 100])
def test_a_discrete_gaussian_has_its_probabilities(variance):
    values = np.arange(-200, 201)
    drawn = discrete_gaussian(variance, (N,), np.random.default_rng(variance))
    assert fits(drawn, values, gaussian_chances(values, variance))


def test_a_wrong_variance_or_a_rounded_gaussian_would_not_fit():
    values = np.arange(-200, 201)
    drawn = discrete_gaussian(9, (N,), np.random.default_rng(0))
    assert not fits(drawn, values, gaussian_chances(values, 10))
    rounded = rounded_gaussian(1.0, (N,), np.random.default_rng(0))
    assert not fits(rounded, values, gaussian_chances(values, 1))


def test_a_sum_of_discrete_gaussians_has_the_convolution_of_their_probabilities():
    values = np.arange(-60, 61)
    one = gaussian_chances(values, 2)
    three = np.convolve(np.convolve(one, one), one)
    drawn = discrete_gaussian(2, (3, N), np.random.default_rng(1)).sum(0)
    assert fits(drawn, np.arange(-180, 181), three)


@pytest.mark.parametrize("variance", [10**6, 4096**2])
def test_a_wide_discrete_gaussian_is_a_gaussian_in_every_percentile(variance):
    """Cut at the percentiles of the normal law, which at a thousand steps is the same to 1e-3 of a count."""
    drawn = discrete_gaussian(variance, (N,), np.random.default_rng(2))
    cells = np.floor(100 * stats.norm.cdf((drawn + 0.5) / variance**0.5)).clip(0, 99)
    assert fits(cells, np.arange(100), np.full(100, 0.01))


@pytest.mark.parametrize("scale", [1, 7])
def test_a_discrete_laplace_has_its_probabilities(scale):
    values = np.arange(-150, 151)
    weights = np.exp(-np.abs(values) / scale)
    assert fits(discrete_laplace(scale, (N,), np.random.default_rng(3)), values, weights / weights.sum())


@pytest.mark.parametrize("variance", [0.5, 12.0])
def test_a_skellam_number_and_a_sum_of_shares_have_its_probabilities(variance):
    values = np.arange(-60, 61)
    chances = stats.skellam.pmf(values, variance / 2, variance / 2)
    assert fits(skellam(variance, (N,), np.random.default_rng(4)), values, chances)
    assert fits(skellam(variance / 5, (5, N), np.random.default_rng(5)).sum(0), values, chances)


@pytest.mark.parametrize("coins", [2, 16, 22, 48, 4096, 4112])
def test_a_centred_binomial_has_its_probabilities(coins):
    """Tossed one by one, and from 4112 coins on by numpy."""
    values = np.arange(-coins // 2, coins // 2 + 1)
    chances = stats.binom.pmf(values + coins // 2, coins, 0.5)
    assert fits(centred_binomial(coins, (N // 2,), np.random.default_rng(6)), values, chances)


def test_samples_have_the_shape_asked_for_and_their_own_draws():
    rng = np.random.default_rng(7)
    for sample in (discrete_gaussian(10**6, (3, 400), rng), centred_binomial(4096, (3, 400), rng)):
        assert sample.shape == (3, 400)
        assert sample.dtype == np.int64
        assert len(np.unique(sample, axis=0)) == 3
    assert discrete_gaussian(4, (0, 5), rng).shape == (0, 5)


@pytest.mark.parametrize(
    ("sampler", "bad", "words"),
    [
        (discrete_gaussian, 0, "variance must be a whole number in 1..16777216, got 0"),
        (discrete_gaussian, 2.5, "variance must be a whole number in 1..16777216, got 2.5"),
        (discrete_gaussian, 4097**2, "variance must be a whole number"),
        (discrete_laplace, 0, "scale must be a whole number >= 1, got 0"),
        (skellam, 0.0, "variance must be a number > 0, got 0.0"),
        (centred_binomial, 7, "coins, .*, must be a positive even number, got 7"),
    ],
)
def test_a_parameter_out_of_range_is_refused(sampler, bad, words):
    with pytest.raises(ValueError, match=words):
        sampler(bad, (2,), np.random.default_rng(0))
