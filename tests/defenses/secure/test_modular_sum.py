"""Modular sum: words and back, rounding without bias under its norm bound, grids that fit.

Masks against a naive version pair by pair: what cancels, what is recovered, and that one word reveals nothing.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.defenses.secure import modular_sum
from fedassay.defenses.secure import modular_sum as drawn_masks
from fedassay.defenses.secure.modular_sum import (
    Grid,
    SizedGrid,
    draw_masks,
    round_rows,
    rounded_norm_bound,
    size_grid,
    to_integers,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


@given(st.lists(st.integers(-128, 127), min_size=1), st.integers(8, 32))
def test_a_sum_that_fits_comes_back_exactly(numbers, bits):
    grid = Grid(step=0.5, bits=bits)
    words = grid.wrap(torch.tensor(numbers))
    assert 0 <= int(words.min()) <= int(words.max()) < 2**bits
    if -(2 ** (bits - 1)) <= sum(numbers) < 2 ** (bits - 1):
        assert float(grid.decode(words.sum())) == sum(numbers) / 2


def test_a_sum_that_does_not_fit_is_off_by_the_modulus():
    grid = Grid(step=2.0, bits=8)
    assert grid.centred(grid.wrap(torch.tensor([127, 128, -128, -129]))).tolist() == [127, -128, -128, 127]
    assert grid.decode(torch.tensor([100 + 100])).tolist() == [2.0 * (200 - 256)]


def test_rounding_has_no_bias_and_goes_to_a_neighbour():
    """40,000 rows of two: five standard errors, wrong once in a million; nothing is too long for its bound."""
    rows = torch.tensor([2.25, -0.7, 3.0]).double().expand(1, 40_000, 3)
    rounded = round_rows(rows, 100.0, np.random.default_rng(0))
    assert rounded.dtype == torch.int64
    assert [set(column.tolist()) for column in rounded[0].T] == [{2, 3}, {-1, 0}, {3}]
    mean = rounded.double().mean(1)[0]
    assert mean.tolist() == pytest.approx([2.25, -0.7, 3.0], abs=5 * 0.5 / math.sqrt(40_000))


def test_no_row_is_longer_than_its_bound_after_rounding():
    """At half a step everywhere a rounded row of 100 has 100 coins: the bound cuts off a part of them."""
    rows = torch.full((50, 40, 100), 0.5, dtype=torch.float64)
    bound = rounded_norm_bound(5.0, 100)
    assert bound == pytest.approx(math.sqrt(25 + 25 + 5 + 5))
    free = round_rows(rows, 100.0, np.random.default_rng(1)).square().sum(-1)
    kept = round_rows(rows, math.sqrt(50), np.random.default_rng(1)).square().sum(-1)
    assert int(free.max()) > 50 >= int(kept.max())
    assert float((free > bound**2).double().mean()) < math.exp(-0.5)


def test_one_rows_luck_shifts_no_other_rows_draws():
    rows = torch.full((1, 3, 40), 0.5, dtype=torch.float64)
    calm = rows.clone()
    calm[:, 0] = 0.0
    one, other = (round_rows(values, math.sqrt(19), np.random.default_rng(5)) for values in (rows, calm))
    assert torch.equal(one[:, 1:], other[:, 1:])


@pytest.mark.parametrize("rows", [1, 7])
def test_blocks_of_rows_are_rounded_as_all_rows_at_once(rows, monkeypatch):
    """Two runs of twenty clients, of which about a third is rounded more than once; one row is not finite."""
    updates = torch.randn(2, 20, 40, generator=torch.Generator().manual_seed(0))
    updates[1, 3, 5] = torch.inf
    sized = SizedGrid(grid=Grid(step=0.25, bits=16), norm_bound=math.sqrt(16 + 8), sigma=1.0)
    whole = to_integers(updates, 1.0, sized, np.random.default_rng(6))
    loose = replace(sized, norm_bound=1e9)
    assert not torch.equal(to_integers(updates, 1.0, loose, np.random.default_rng(6)), whole)
    monkeypatch.setattr(modular_sum, "_NUMBERS", rows * 40)
    assert torch.equal(to_integers(updates, 1.0, sized, np.random.default_rng(6)), whole)


def test_the_bound_is_the_smaller_of_the_two():
    assert rounded_norm_bound(1.0, 1) == math.sqrt(1 + 0.25 + 1.5)
    assert rounded_norm_bound(0.1, 4) == pytest.approx(math.sqrt(0.01 + 1 + 1.1))
    assert rounded_norm_bound(1e6, 100) == pytest.approx(1e6, rel=1e-5)


def test_what_is_no_number_or_never_short_enough_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="updates must be finite"):
        round_rows(torch.tensor([[[math.nan]]]).double(), 1.0, rng)
    with pytest.raises(
        ValueError, match="no vector of 2 coordinates was rounded to a norm of at most 1 grid steps in 1000 tries"
    ):
        round_rows(torch.tensor([[[3.0, 0.0]]]).double(), 1.0, rng)


def sized(**changes):
    fields = {"clip_norm": 2.0, "bits": 16, "dim": 50, "rows": 10, "survivors": 7, "rounds": 3}
    return size_grid(**(fields | {"sigma_of": lambda norm: 2 * norm, "largest_sigma": 1e9} | changes))


def test_the_grid_is_the_finest_on_which_the_worst_sum_fits():
    """All ten rows along one coordinate and the noise of ten shares at its Bernstein bound."""
    found = sized()
    norm = round(2.0 / found.grid.step)
    nats = math.log(2 * 50 * 3 / 1e-9)

    def worst(norm):
        sigma = 2 * rounded_norm_bound(norm, 50) * math.sqrt(10 / 7)
        return (
            10 * min(norm + 1, rounded_norm_bound(norm, 50)) + nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * sigma**2)
        )

    assert worst(norm) < 2**15 <= worst(norm + 1)
    assert found.norm_bound == rounded_norm_bound(norm, 50)
    assert found.sigma == 2 * found.norm_bound


def test_noise_within_the_samplers_range_bounds_the_grid_too():
    assert sized(bits=32, largest_sigma=500.0).sigma == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"bits": 8, "rows": 1000},
            "the clip norm is at least one grid step: the sum of 1000 clients with noise does not fit into 8",
        ),
        (
            {"bits": 15, "dim": 10**6, "rows": 60, "survivors": 42},
            "bits must be large enough that rounding does not double the clip norm of .* in 1000000 coordinates",
        ),
    ],
)
def test_words_that_are_too_short_are_refused_with_the_reason(changes, words):
    with pytest.raises(ValueError, match=words):
        sized(**changes)


@pytest.mark.parametrize(
    ("fields", "words"), [({"bits": 7}, "bits must"), ({"bits": 8.0}, "bits must"), ({"step": 0.0}, "step")]
)
def test_a_grid_that_is_none_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Grid(**({"bits": 16, "step": 1.0} | fields))


GRID = Grid(step=1.0, bits=8)


def cohort(invited, dropped):
    """Four replicas of ten clients, the last of them never invited, the first ``dropped`` lost."""
    asked = torch.ones(4, 10, dtype=torch.bool)
    asked[:, invited:] = False
    stayed = asked.clone()
    stayed[:, :dropped] = False
    return asked, stayed


@pytest.fixture(params=["by pairs", "by sums"])
def way(request, monkeypatch):
    """Small cohorts are drawn by pairs, unless the limit is 0."""
    if request.param == "by sums":
        monkeypatch.setattr(drawn_masks, "_PAIRS", 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("invited", "dropped"), [(10, 0), (10, 1), (10, 3), (7, 2), (1, 0), (2, 2)])
def test_what_is_not_recovered_cancels_among_the_survivors(invited, dropped):
    asked, stayed = cohort(invited, dropped)
    masks = draw_masks(asked, stayed, 50, GRID, np.random.default_rng(0))
    left = (masks.words - masks.recovered) * stayed.unsqueeze(-1)
    assert not GRID.wrap(left.sum(1)).any()
    assert int(masks.words.min()) >= 0
    assert int(masks.words.max()) < GRID.modulus
    assert not masks.words[~asked].any()
    assert not masks.recovered[~stayed].any()


def test_masks_are_those_of_the_protocol_pair_by_pair():
    """The naive version draws the same numbers: for each client its own mask, then those with every later one."""
    asked, stayed = cohort(9, 3)
    masks = draw_masks(asked, stayed, 6, GRID, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    words, recovered = np.zeros((4, 10, 6), int), np.zeros((4, 10, 6), int)
    for u in range(10):
        own = rng.integers(0, GRID.modulus, (4, 6))
        pairs = rng.integers(0, GRID.modulus, (4, 9 - u, 6))
        for replica in range(4):
            words[replica, u] += own[replica]
            recovered[replica, u] += own[replica]
            for v in range(u + 1, 10):
                if not (asked[replica, u] and asked[replica, v]):
                    continue
                shared = pairs[replica, v - u - 1]
                words[replica, u] += shared
                words[replica, v] -= shared
                # The pair's key is revealed if one of the two is gone.
                recovered[replica, u] += shared * (not stayed[replica, v])
                recovered[replica, v] -= shared * (not stayed[replica, u])
    np.testing.assert_array_equal(masks.words, words % 256 * asked.numpy()[..., None])
    np.testing.assert_array_equal(masks.recovered, recovered % 256 * stayed.numpy()[..., None])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seen", ["word", "word without what is recovered", "two words together"])
def test_one_clients_word_is_uniform_whatever_it_holds(seen):
    """Chi-square of 40,000 words at one in a million; two survivors of three, of words of 8 bits, all holding 77."""
    asked = torch.ones(1, 4, dtype=torch.bool)
    stayed = torch.tensor([[True, True, True, False]])
    masks = draw_masks(asked, stayed, 40_000, GRID, np.random.default_rng(2))
    shown = 77 + masks.words - (masks.recovered if seen != "word" else 0)
    word = GRID.wrap(shown[0, 0] + 3 * shown[0, 1] if seen == "two words together" else shown[0, 0])
    counts = np.bincount(word, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.usefixtures("way")
def test_without_its_pairs_one_client_that_is_left_alone_would_be_bare():
    """All others dropped: everything of its mask is recovered. That is why a round needs a threshold."""
    asked = torch.ones(1, 3, dtype=torch.bool)
    stayed = torch.tensor([[False, True, False]])
    masks = draw_masks(asked, stayed, 9, GRID, np.random.default_rng(3))
    assert torch.equal(masks.words[0, 1], masks.recovered[0, 1])


@pytest.mark.usefixtures("way")
def test_words_and_what_is_recovered_have_one_joint_law():
    """Three survivors, a client that dropped out, and one that was not invited: the parities of 20,000 coordinates.

    The four words and two of the three differences to what is recovered are independent fair coins; the third
    difference is their sum. Every combination of the six coins is equally frequent (chi-square at one in a million).
    """
    asked = torch.tensor([[True, True, False, True, True]])
    stayed = torch.tensor([[True, False, False, True, True]])
    masks = draw_masks(asked, stayed, 20_000, GRID, np.random.default_rng(4))
    words, between = masks.words[0, [0, 1, 3, 4]] % 2, (masks.words - masks.recovered)[0, [0, 3, 4]] % 2
    assert torch.equal(between[2], (between[0] + between[1]) % 2)
    coins = torch.cat([words, between[:2]])
    counts = np.bincount((coins * 2 ** torch.arange(6).unsqueeze(1)).sum(0), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_large_cohorts_draw_as_many_numbers_as_they_have_clients():
    """By pairs, 300 clients would draw 45,150 numbers a coordinate."""
    asked = torch.ones(1, 300, dtype=torch.bool)
    drawn = Counting(5)
    draw_masks(asked, asked, 2, GRID, drawn)
    assert drawn.numbers == 2 * (300 + 299)


class Counting:
    """A generator that counts what it draws."""

    def __init__(self, seed):
        self.rng, self.numbers = np.random.default_rng(seed), 0

    def integers(self, low, high, shape):
        self.numbers += int(np.prod(shape))
        return self.rng.integers(low, high, shape)
