"""Factorisations: known answers by hand and of the literature, brute force over all patterns, a naive search."""

import itertools
import math
from typing import get_args

import numpy as np
import pytest
from fedassay.defenses.accounting.correlated import (
    CorrelatedNoise,
    Kind,
    Participation,
    _banded,
    correlated_noise,
)
from scipy.optimize import minimize

BANDS = {"banded": 3, "banded_square_root": 3, "banded_inverse_square_root": 3, "blt": 2}


def noise_of(kind, rounds, **options):
    return correlated_noise(kind, rounds, bands=BANDS.get(kind, 0), **options)


def prefixes(noise):
    """Standard deviations of the noise of each prefix sum."""
    return np.sqrt(np.square(np.cumsum(noise.weights, axis=0)).sum(axis=1))


def test_a_prefix_of_a_tree_has_the_noise_of_the_ones_in_its_binary_number():
    """Kairouz et al. 2021: the sum of rounds 1 to 6 adds the nodes of rounds 1 to 4 and 5 to 6."""
    squares = np.square(prefixes(noise_of("tree", 11)))
    np.testing.assert_allclose(squares, [number.bit_count() for number in range(1, 12)])


@pytest.mark.parametrize(("rounds", "levels"), [(1, 1), (8, 4), (11, 4), (16, 5)])
def test_one_participation_moves_as_many_nodes_of_a_tree_as_it_has_levels(rounds, levels):
    moved = noise_of("tree", rounds).sensitivity(Participation(period=rounds))
    assert moved == pytest.approx(math.sqrt(levels))


def test_estimates_from_below_have_the_variance_of_honaker():
    """1 / (2 - 2^-level) of a whole tree of 2^level rounds: 1, 2/3, 4/7, 8/15."""
    squares = np.square(prefixes(noise_of("honaker", 8)))
    np.testing.assert_allclose(squares[[0, 1, 3, 7]], [1, 2 / 3, 4 / 7, 8 / 15])


def test_releases_of_a_tree_cost_no_more_than_all_of_its_nodes():
    """A client moves one node of each level, four of eight rounds; estimates from below do not release all of them."""
    one = Participation(period=8)
    assert noise_of("honaker", 8).sensitivity(one) < noise_of("tree", 8).sensitivity(one) == pytest.approx(2.0)


def test_the_square_root_has_equal_rows_and_columns():
    """Fichtenberger et al. 2023: both factors of the sum are one matrix of coefficients 1, 1/2, 3/8, 5/16."""
    noise = noise_of("square_root", 4)
    column = math.sqrt(1 + 1 / 4 + 9 / 64 + 25 / 256)
    assert prefixes(noise)[-1] == pytest.approx(column)
    assert noise.sensitivity(Participation(period=4)) == pytest.approx(column)


def test_of_two_rounds_the_least_error_is_known():
    """With the off-diagonal x of C^T C the error is (3 - 2x) / (1 - x^2), least at x = (3 - 5^(1/2)) / 2, the square of
    the golden ratio.
    """
    noise = noise_of("dense", 2)
    assert 2 * noise.error**2 == pytest.approx((3 + math.sqrt(5)) / 2)
    assert noise.precision[0, 1] == pytest.approx((3 - math.sqrt(5)) / 2)


def test_for_one_participation_no_kind_errs_less_than_the_dense_one():
    one = Participation(period=12)
    errors = {kind: noise_of(kind, 12).error * noise_of(kind, 12).sensitivity(one) for kind in get_args(Kind)}
    assert min(errors, key=errors.__getitem__) == "dense"
    # More bands than rounds: the banded strategy is the dense one.
    assert correlated_noise("banded", 12, bands=12).error == pytest.approx(errors["dense"], rel=1e-4)


def test_columns_of_one_client_are_orthogonal_in_the_dense_factorisation_of_several_passes():
    schema = Participation(period=3)
    noise = noise_of("dense", 9, schema=schema)
    assert noise.sensitivity(schema) == pytest.approx(math.sqrt(3), rel=1e-6)
    single = noise_of("dense", 9)
    assert noise.error * noise.sensitivity(schema) < single.error * single.sensitivity(schema)


def test_the_errors_are_those_of_jax_privacy():
    """Version 2.0.0, mean squared error: BandMF in 64 rounds with 16 bands and one participation or four, one dense
    participation, BLT of 3 buffers (``benchmarks/factorisations.py`` computes them side by side).
    """

    def loss(kind, bands, period):
        schema = Participation(period=period)
        noise = correlated_noise(kind, 64, schema=schema, bands=bands)
        return noise.error * noise.sensitivity(schema)

    assert loss("banded", 16, 64) == pytest.approx(2.29262, rel=1e-4)
    assert loss("banded", 16, 16) == pytest.approx(4.58524, rel=1e-4)
    assert loss("dense", 0, 64) == pytest.approx(2.09987, rel=1e-4)
    assert loss("blt", 3, 64) == pytest.approx(2.17991, rel=1e-3)
    assert loss("blt", 3, 16) == pytest.approx(4.91684, rel=1e-3)


def test_the_banded_strategy_is_the_best_that_a_naive_search_finds():
    """Nelder and Mead on the free entries of a strategy of four rounds and two bands, normalised column by column."""
    total = np.tril(np.ones((4, 4)))

    def error(free):
        strategy = np.diag([1.0] * 4) + np.diag(free, -1)
        strategy = strategy / np.linalg.norm(strategy, axis=0)
        return np.square(total @ np.linalg.inv(strategy)).sum()

    naive = minimize(error, [0.5] * 3, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).fun
    assert np.square(total @ _banded(4, 2)).sum() == pytest.approx(naive, rel=1e-8)


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("schema", [Participation(period=3), Participation(), Participation(period=3, same=False)])
def test_the_sensitivity_is_that_of_all_patterns_and_contributions(kind, schema):
    """Brute force over all patterns of six rounds and all signs, and random contributions of norm 1 in three
    dimensions, in the metric of the covariance of what is released.
    """
    noise = noise_of(kind, 6)
    precision = np.linalg.inv(noise.weights @ noise.weights.T)
    rng = np.random.default_rng(0)
    largest = 0.0
    for pattern in schema.patterns(6):
        part = precision[np.ix_(pattern, pattern)]
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(pattern))))
        vectors = rng.standard_normal((200, len(pattern), 3))
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        largest = max(largest, np.einsum("ns,st,nt->n", signs, part, signs).max())
        assert np.einsum("nsd,st,ntd->n", vectors, part, vectors).max() <= largest + 1e-9
    found = noise.sensitivity(schema)
    if schema.same:
        assert found == pytest.approx(math.sqrt(largest))
    else:
        assert math.sqrt(largest) <= found + 1e-12
        # Two passes in any order: the bound takes the worst pair of rounds, and is exact for noise of its own.
        assert kind != "independent" or found == pytest.approx(math.sqrt(2))


def test_a_client_who_keeps_its_place_moves_less_than_one_in_any_order():
    noise = noise_of("square_root", 8)
    kept, any_order = (noise.sensitivity(Participation(period=4, same=same)) for same in (True, False))
    assert kept < any_order < noise.sensitivity(Participation())


def test_a_transposed_toeplitz_factor_breaks_nothing_and_a_transposed_tree_does():
    """Turned around in time, a Toeplitz factor meets the same patterns; a tree's nodes do not."""
    schema = Participation(period=4)
    for kind, same in (("banded_square_root", True), ("tree", False)):
        noise = noise_of(kind, 8)
        turned = CorrelatedNoise(noise.weights.T).sensitivity(schema)
        assert (turned == pytest.approx(noise.sensitivity(schema))) == same
        assert turned >= noise.sensitivity(schema) - 1e-9


def test_noise_that_begins_anew_is_that_of_shorter_trainings_one_after_the_other():
    noise = noise_of("tree", 7, restart=3)
    np.testing.assert_allclose(np.square(np.linalg.norm(noise.weights[3])), 1)
    np.testing.assert_allclose(np.square(prefixes(noise)), [1, 1, 2, 3, 3, 4, 5])
    alone = [noise_of("tree", rounds).sensitivity(Participation()) ** 2 for rounds in (3, 3, 1)]
    assert noise.sensitivity(Participation()) == pytest.approx(math.sqrt(sum(alone)))


def test_the_first_rounds_are_releases_of_their_own():
    noise = noise_of("tree", 8)
    assert noise.sensitivity(Participation(), 3) == pytest.approx(noise_of("tree", 3).sensitivity(Participation()))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("tre", {}, "kind must be one of"),
        ("tree", {"bands": 2}, "bands must be 0 for noise of the kind tree"),
        ("banded", {}, "bands must be >= 1 for noise of the kind banded, got 0"),
        ("blt", {"bands": True}, "bands must be a whole number >= 0, got True"),
        ("tree", {"restart": 1.0}, "restart must be a whole number >= 0, got 1.0"),
        ("tree", {"rounds": 0}, "rounds must be a whole number >= 1"),
    ],
)
def test_what_cannot_be_built_is_refused(kind, options, words):
    with pytest.raises(ValueError, match=words):
        correlated_noise(kind, **{"rounds": 4, **options})


def test_two_rounds_of_one_noise_are_refused():
    with pytest.raises(ValueError, match="linearly independent"):
        CorrelatedNoise(np.ones((2, 2)))
    with pytest.raises(ValueError, match="period must be"):
        Participation(period=0)
