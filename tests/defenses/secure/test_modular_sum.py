"""Modular sum: words and back, rounding without bias under its norm bound, grids that fit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.defenses.secure import modular_sum
from fedassay.defenses.secure.modular_sum import Grid, SizedGrid, round_rows, rounded_norm_bound, size_grid, to_integers
from hypothesis import given
from hypothesis import strategies as st


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
            "the clip norm is at least one grid step: 1000 clients and noise do not fit 8",
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
