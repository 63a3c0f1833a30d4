"""Law: clipped contributions, a normal density as scipy has it, and samples of the stated mean and spread.

Layered law: clip and noise by layer, by hand; rows that end in any layer; what it refuses.
"""

import math

import numpy as np
import pytest
import torch
from fedassay.fl.laws import (
    GaussianLaw,
    LayeredGaussianLaw,
    Mixing,
    ReportLaw,
    clip,
    clip_entries,
    clipped_sum,
    layer_starts,
    lot_sum,
    sparsify_layers,
    spread_layers,
)
from fedassay.fl.layout import Layout
from fedassay.fl.streams import Streams, normal
from scipy import stats

LAW = GaussianLaw(clip_norm=2.0, scale=-0.5, noise_std=0.3)


def rows(shape, dtype=torch.float64):
    return normal(Streams(5).generator("rows"), shape, dtype=dtype)


def test_clip_shortens_long_rows_to_the_norm_and_leaves_short_ones_alone():
    given = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-30.0, 40.0]])
    torch.testing.assert_close(clip(given, 2.0), torch.tensor([[1.2, 1.6], [0.3, 0.4], [0.0, 0.0], [-1.2, 1.6]]))
    assert torch.equal(clip(given, 2.0)[1:3], given[1:3])


def test_clip_never_exceeds_the_norm_and_keeps_the_direction_in_any_shape():
    for size in (1e-20, 1e-3, 1.0, 1e3, 1e15):
        given = size * rows((4, 3, 7))
        clipped = clip(given, 0.7)
        assert float(clipped.norm(dim=-1).max()) <= 0.7 * (1 + 1e-12)
        torch.testing.assert_close(torch.cosine_similarity(clipped, given, dim=-1, eps=0), torch.ones(4, 3).double())


def test_a_row_too_long_for_its_norm_to_be_a_number_is_still_bounded():
    huge = torch.full((2, 8), 3e38)
    clipped = clip(huge, 1.0)
    assert bool(clipped.isfinite().all())
    assert float(clipped.norm(dim=-1).max()) <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whatever_stands_in_a_row_its_clip_is_finite_no_longer_and_one_for_all_bounds(dtype):
    """A NaN entry is zero, infinity the largest number; the other rows are clipped as usual."""
    nan, inf, half = math.nan, math.inf, math.sqrt(0.5)
    given = [[inf, 1, 2], [inf, -inf, 3], [nan, 30, 40], [nan, 0.3, nan], [nan, nan, nan], [1e38, 1e38, 0], [3, 0, 4]]
    bounded = [[1, 0, 0], [half, -half, 0], [0, 0.6, 0.8], [0, 0.3, 0], [0, 0, 0], [half, half, 0], [0.6, 0, 0.8]]
    rows, expected = torch.tensor(given, dtype=dtype), torch.tensor(bounded, dtype=dtype)
    torch.testing.assert_close(clip(rows, 1.0), expected)
    torch.testing.assert_close(clip(3 * rows, torch.full((7, 1), 3.0, dtype=dtype))[:3], 3 * expected[:3])
    assert torch.equal(clip(rows, 1.0)[-1], clip(rows[-1], 1.0))
    assert float(clip(rows, 1e-6).norm(dim=-1).max()) <= 1e-6 * (1 + 1e-6)
    assert bool(clip(rows, 1e30).isfinite().all())


def test_the_clip_of_a_finite_row_differentiates_alike_next_to_any_row():
    """Of x / |x| the Jacobian is (I - u u^T) / |x|, and of a short row the identity."""
    given = torch.tensor([[3.0, 4.0], [0.3, 0.4], [math.inf, math.nan]], dtype=torch.float64, requires_grad=True)
    for last in (2, 3):  # Without and with the row that is none.
        (slope,) = torch.autograd.grad(clip(given[:last], 1.0)[:2].sum(), given)
        torch.testing.assert_close(slope[:2], torch.tensor([[0.032, -0.024], [1.0, 1.0]], dtype=torch.float64))


def test_an_entry_that_is_no_number_counts_as_zero():
    given = torch.tensor([math.nan, math.inf, -math.inf, 0.05, -3e38])
    assert torch.equal(clip_entries(given, 0.1), torch.tensor([0.0, 0.1, -0.1, 0.05, -0.1]))


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_clip_refuses_a_norm_that_bounds_nothing(norm):
    with pytest.raises(ValueError, match=f"clip norm must be a number > 0, got {norm}"):
        clip(torch.ones(2, 2), norm)


def test_a_contribution_is_the_scale_times_the_clipped_row():
    given = torch.tensor([[[3.0, 4.0]], [[0.3, 0.4]]])
    torch.testing.assert_close(LAW.contribution(given), torch.tensor([[[-0.6, -0.8]], [[-0.15, -0.2]]]))


def test_the_density_is_that_of_a_multivariate_normal():
    release, centre = rows((4, 6)), rows((6,)) / 2
    expected = stats.multivariate_normal(mean=centre.numpy(), cov=0.3**2 * np.eye(6)).logpdf(release.numpy())
    np.testing.assert_allclose(LAW.log_density(release, centre), expected, rtol=1e-10)
    assert LAW.log_density(release[0], centre).shape == ()


def test_the_density_differentiates_to_the_standardised_residual():
    release, centre = rows((3, 6)), rows((6,)).requires_grad_(True)
    LAW.log_density(release, centre).sum().backward()
    torch.testing.assert_close(centre.grad, ((release - centre.detach()) / 0.3**2).sum(0))


def test_the_density_of_a_contribution_differentiates_through_clip_and_scale():
    row, release = rows((6,)), rows((6,)) / 3

    def density(row):
        return LAW.log_density(release, LAW.contribution(row))

    for size in (0.1, 10.0):
        point = (size * row).requires_grad_(True)
        assert torch.autograd.gradcheck(density, point)


def test_the_gradient_at_a_zero_row_is_a_number():
    row = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    LAW.log_density(rows((6,)), LAW.contribution(row)).backward()
    assert bool(row.grad.isfinite().all())


def test_a_sample_keeps_the_precision_of_its_contribution():
    for dtype in (torch.float32, torch.float64):
        assert LAW.sample(torch.zeros(2, 3, dtype=dtype), Streams(6).generator("noise")).dtype == dtype


def test_a_release_without_noise_has_no_density():
    silent = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=0.0)
    assert torch.equal(silent.sample(torch.ones(2, 2), Streams(6).generator("noise")), torch.ones(2, 2))
    with pytest.raises(ValueError, match="noise_std must be > 0"):
        silent.log_density(torch.ones(2), torch.ones(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_norm": 0.0}, "clip norm must be a number > 0, got 0.0"),
        ({"noise_std": -1.0}, "noise_std must be a number >= 0, got -1.0"),
        ({"rate": 1.5}, r">= 1, got 1.5 and 1"),
        ({"steps": 0}, "got 1.0 and 0"),
        ({"scale": 0.0}, "scale .* other than 0, got 0.0"),
        ({"scale": math.nan}, "scale .*got nan"),
        ({"clip_norm": "1"}, "clip_norm of a law must be a number, got '1'"),
        ({"noise_std": torch.tensor(1.0)}, r"noise_std of a law must be a number, got tensor"),
    ],
)
def test_a_law_of_no_release_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GaussianLaw(**({"clip_norm": 1.0, "scale": 1.0, "noise_std": 1.0} | change))


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf, 3e38])
def test_a_lots_sum_is_of_those_who_were_drawn_whatever_the_others_hold(bad):
    given, present = rows((6, 5, 4), torch.float32), rows((6, 5)) < 0
    assert 0 < present.sum() < present.numel()
    expected = torch.stack([row[drawn].sum(0) for row, drawn in zip(given, present, strict=True)])
    held = given.masked_fill(~present.unsqueeze(-1), bad)
    torch.testing.assert_close(lot_sum(held, present), expected)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf, 3e38])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_clipped_sum_is_the_sum_of_clipped_rows_whatever_stands_in_one(bad, drawn):
    given, present = rows((6, 5, 4), torch.float32), rows((6, 5)) < 0
    given[2, 3], present[2, 3] = bad, drawn
    for norm in (0.5, torch.linspace(0.1, 5, 6).view(6, 1, 1)):
        torch.testing.assert_close(clipped_sum(given, present, norm), lot_sum(clip(given, norm), present))
    with pytest.raises(ValueError, match="clip norm"):
        clipped_sum(given, present, -1.0)


def test_a_long_vector_is_clipped_to_the_norm_and_not_beyond():
    rows = torch.randn(1, 2, 6_000_000, generator=torch.Generator().manual_seed(0))
    # Added in single precision, the squares of so many numbers fall short by 2e-4.
    lengths = clip(rows, 1.0).double().norm(dim=-1)
    assert float((lengths - 1).abs().max()) < 1e-6
    assert float(clipped_sum(rows[:, :1], torch.ones(1, 1, dtype=torch.bool), 1.0).double().norm()) < 1 + 1e-6


LAYERED = LayeredGaussianLaw(starts=(0, 2, 5), clip_norms=(1.0, 2.0, 0.5), noise_stds=(0.1, 3.0, 2.0))


def test_each_layer_is_clipped_by_itself_and_the_last_reaches_to_the_end():
    row = torch.tensor([3.0, 4.0, 0.0, 0.0, 1.0, 0.3, 0.4, 1.2])
    expected = torch.tensor([0.6, 0.8, 0.0, 0.0, 1.0, 0.3 / 2.6, 0.4 / 2.6, 1.2 / 2.6])
    torch.testing.assert_close(LAYERED.contribution(row), expected)


def test_one_layer_is_the_plain_clip():
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    law = LayeredGaussianLaw(starts=(0,), clip_norms=(0.7,), noise_stds=(1.0,))
    assert torch.equal(law.contribution(rows), clip(rows, 0.7))


def test_noise_and_density_are_each_layers_own():
    """40,000 reports: five standard errors of a deviation are under 2 %."""
    drawn = LAYERED.sample(torch.zeros(40_000, 7), np.random.default_rng(0))
    for columns, std in ((drawn[:, :2], 0.1), (drawn[:, 2:5], 3.0), (drawn[:, 5:], 2.0)):
        assert float(columns.std()) == pytest.approx(std, rel=0.02)
    stds = torch.tensor([0.1, 0.1, 3.0, 3.0, 3.0, 2.0, 2.0]).double()
    point = drawn[:5].double()
    by_torch = torch.distributions.Normal(0.5, stds).log_prob(point)
    torch.testing.assert_close(LAYERED.log_densities(point, torch.full_like(point, 0.5)), by_torch)
    torch.testing.assert_close(LAYERED.log_density(point, torch.full_like(point, 0.5)), by_torch.sum(-1))


@pytest.mark.parametrize(("dim", "sizes"), [(1, [1, 0, 0]), (4, [2, 2, 0]), (9, [2, 3, 4])])
def test_rows_may_end_in_any_layer(dim, sizes):
    spread = spread_layers(torch.tensor([[1.0, 2.0, 3.0]]), LAYERED.starts, dim)
    expected = [float(number) for number, size in enumerate(sizes, start=1) for _ in range(size)]
    assert spread.tolist() == [expected]
    assert LAYERED.contribution(torch.ones(dim)).shape == (dim,)


def test_the_worst_pair_is_twice_every_clip_norm_apart():
    """Scores of it have the joint mu: the root of the sum of (2 C_l / sigma_l)^2."""
    absent, present = LAYERED.worst_pair(8)
    apart = (LAYERED.contribution(present) - LAYERED.contribution(absent)).double()
    stds = spread_layers(torch.tensor(LAYERED.noise_stds), LAYERED.starts, 8)
    assert float((apart / stds).norm()) == pytest.approx(math.hypot(2 / 0.1, 4 / 3, 1 / 2), rel=1e-6)
    assert isinstance(LAYERED, ReportLaw)
    assert LAYERED.mixing is Mixing.NONE


def test_the_smallest_numbers_of_each_layer_are_dropped():
    row = torch.tensor([5.0, -6.0, 0.1, -0.3, 0.2, 0.0, 7.0])
    assert sparsify_layers(row, (0, 2, 5), 0.5).tolist() == torch.tensor([0, -6, 0, -0.3, 0.2, 0, 7]).tolist()
    assert sparsify_layers(row, (0, 2, 5), 0.0) is row


def test_inert_weights_stand_in_the_last_layer():
    layout = Layout(names=("a", "b"), shapes=((2, 3), (4,)), inert=2)
    assert layer_starts(layout) == (0, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"noise_stds": (1.0, 1.0)},
            "every layer must have a clip norm and a noise standard deviation, got 3 layers, 3 norms and 2",
        ),
        ({"starts": (1, 2, 5)}, "must ascend from 0"),
        ({"starts": (0, 2, 2)}, "must ascend from 0"),
        ({"noise_stds": (1.0, 0.0, 1.0)}, "noise_stds must be numbers > 0, got 0.0"),
        ({"dropped": 1.0}, r"dropped .*must be in \[0, 1\), got 1.0"),
    ],
)
def test_impossible_laws_are_refused(change, message):
    fields = {"starts": LAYERED.starts, "clip_norms": LAYERED.clip_norms, "noise_stds": LAYERED.noise_stds}
    with pytest.raises(ValueError, match=message):
        LayeredGaussianLaw(**(fields | change))
