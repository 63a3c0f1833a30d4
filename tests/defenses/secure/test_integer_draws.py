"""Samplers: every law against its probabilities, and the sum of discrete Gaussians against their convolution.

Chi-square at one in a million: eleven tests falsely alarm once in some 90,000 seeds, and these seeds are fixed.

The table of a discrete Gaussian: its units by counting all words, its law with words so short that rests are common.

Chi-square and binomial tests at one in a million, with fixed seeds.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from fedassay.defenses.secure import integer_draws as module
from fedassay.defenses.secure.integer_draws import (
    GaussianTable,
    block_length,
    centred_binomial,
    discrete_gaussian,
    discrete_laplace,
    exp_floor,
    gaussian_table,
    is_below,
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


def fits_gaussian(drawn, variance):
    values = np.arange(-12 * math.isqrt(variance) - 12, 12 * math.isqrt(variance) + 13)
    return fits(drawn, values, gaussian_chances(values, variance))


@pytest.mark.parametrize("variance", [1, 2, 9, 100])
def test_a_discrete_gaussian_has_its_probabilities(variance):
    assert fits_gaussian(discrete_gaussian(variance, (N,), np.random.default_rng(variance)), variance)


def test_a_wrong_variance_or_a_rounded_gaussian_would_not_fit():
    assert not fits_gaussian(discrete_gaussian(9, (N,), np.random.default_rng(0)), 10)
    assert not fits_gaussian(rounded_gaussian(1.0, (N,), np.random.default_rng(0)), 1)


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


WORDS = 200_000
SHORT = [(1, 8), (4, 8), (9, 9), (50, 10)]
"""Variances, and words so short that a good part of all draws needs the units that are left."""


class Words:
    """Gives the words of a list in place of a generator's."""

    def __init__(self, words):
        self.words = np.asarray(words, dtype=np.uint64)

    def integers(self, low, high, size, dtype):
        return self.words.copy()


def decimal_mass(x, variance, scale):
    with localcontext() as context:
        context.prec = 120
        return scale * (Decimal(-(x**2)) / (2 * variance)).exp()


@pytest.mark.parametrize("scale", [1, 1000, 2**64 - 1, 2**200])
@pytest.mark.parametrize(("numerator", "denominator"), [(0, 3), (1, 2**25), (1, 2), (7, 3), (81, 2), (10**4, 7)])
def test_floors_of_exponentials_are_those_of_decimal_arithmetic(numerator, denominator, scale):
    with localcontext() as context:
        context.prec = 800
        exact = math.floor(scale * (Decimal(-numerator) / denominator).exp())
    assert exp_floor(numerator, denominator, scale) == exact


@pytest.mark.parametrize(("variance", "bits"), [*SHORT, (1, 16), (100, 16)])
def test_every_word_is_a_unit_of_its_integer(variance, bits):
    """All words of a short length: each integer of the table has as many as the whole part of its mass."""
    table, drawn = gaussian_table(variance, bits=bits), np.empty(1 << bits, dtype=np.int64)
    table._look_up(drawn, Words(np.arange(1 << bits)))
    found = {int(value): int(count) for value, count in zip(*np.unique(drawn, return_counts=True), strict=True)}
    masses = {x: math.floor(decimal_mass(x, variance, table.scale)) for x in range(-table.reach, table.reach + 1)}
    assert found == {**masses, table.reach + 1: table.left}
    assert masses[table.reach] >= 1 > decimal_mass(table.reach + 1, variance, table.scale)


@pytest.mark.parametrize("variance", [1, 33489, 4096**2])
def test_columns_of_long_words_hold_the_units_of_their_integers(variance):
    table = gaussian_table(variance)
    columns = len(table.limits)
    size, held = 2**64 // columns, [0] * columns
    for column, (limit, other) in enumerate(zip(table.limits.tolist(), table.others.tolist(), strict=True)):
        held[column] += limit
        held[other + table.reach] += size - limit
    for x in {0, 1, math.isqrt(variance), table.reach - 1, table.reach}:
        exact = math.floor(decimal_mass(x, variance, table.scale))
        assert held[table.reach + x] == held[table.reach - x] == exact
    assert held[2 * table.reach + 1] == table.left == 2**64 - sum(held[: 2 * table.reach + 1])
    assert not any(held[2 * table.reach + 2 :])
    assert table.left < 2**45


@pytest.mark.simulations
@pytest.mark.parametrize(("variance", "bits"), SHORT)
def test_short_words_have_the_law_of_long_ones(variance, bits):
    table = gaussian_table(variance, bits=bits)
    drawn = table.draw(WORDS, np.random.default_rng(variance))
    assert table.left > 0.05 * 2**bits
    assert abs(drawn).max() > table.reach
    assert fits_gaussian(drawn, variance)


@pytest.mark.parametrize("answer", [True, False])
def test_rests_that_are_always_or_never_accepted_would_not_fit(answer, monkeypatch):
    monkeypatch.setattr(module, "is_below", lambda digits, bits, rng: answer)
    assert not fits_gaussian(gaussian_table(4, bits=8).draw(WORDS, np.random.default_rng(4)), 4)


@pytest.mark.simulations
def test_a_table_without_its_tail_would_not_fit(monkeypatch):
    whole = GaussianTable._accepted

    def cut(table, rng):
        found = whole(table, rng)
        return None if found is None or abs(found) > table.reach else found

    monkeypatch.setattr(GaussianTable, "_accepted", cut)
    assert not fits_gaussian(gaussian_table(4, bits=8).draw(WORDS, np.random.default_rng(4)), 4)


def digits_of(p):
    return lambda count: math.floor(p * 2**count)


@pytest.mark.parametrize("bits", [1, 2, 64])
@pytest.mark.parametrize("p", [0.0, 1 / 3, 0.5, 0.82])
def test_a_comparison_digit_by_digit_has_its_probability(p, bits):
    """One digit at a time, half of all comparisons are undecided after the first."""
    rng = np.random.default_rng(5)
    hits = sum(is_below(digits_of(p), bits, rng) for _ in range(20_000))
    assert stats.binomtest(hits, 20_000, p).pvalue > ALARM


@pytest.mark.parametrize("variance", [1, 2, 50, 33489])
def test_each_block_beyond_a_table_has_less_than_half_the_mass_of_the_one_before(variance):
    length = block_length(variance)
    for start in (1, 5, length):
        first = decimal_mass(start, variance, 1)
        assert all(decimal_mass(start + k * length, variance, 1) < first / 2**k for k in range(1, 6))


def test_words_that_are_too_short_for_a_variance_are_refused():
    with pytest.raises(ValueError, match=r"bits must be enough for .* units, got 8"):
        gaussian_table(100, bits=8)
