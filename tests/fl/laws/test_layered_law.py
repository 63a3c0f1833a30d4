"""Layered law: clip and noise by layer, by hand; rows that end in any layer; what it refuses."""

import math

import numpy as np
import pytest
import torch
from fedassay.fl.laws import LayeredGaussianLaw, Mixing, ReportLaw, clip, layer_starts, sparsify_layers, spread_layers
from fedassay.fl.layout import Layout

LAW = LayeredGaussianLaw(starts=(0, 2, 5), clip_norms=(1.0, 2.0, 0.5), noise_stds=(0.1, 3.0, 2.0))


def test_each_layer_is_clipped_by_itself_and_the_last_reaches_to_the_end():
    row = torch.tensor([3.0, 4.0, 0.0, 0.0, 1.0, 0.3, 0.4, 1.2])
    expected = torch.tensor([0.6, 0.8, 0.0, 0.0, 1.0, 0.3 / 2.6, 0.4 / 2.6, 1.2 / 2.6])
    torch.testing.assert_close(LAW.contribution(row), expected)


def test_one_layer_is_the_plain_clip():
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    law = LayeredGaussianLaw(starts=(0,), clip_norms=(0.7,), noise_stds=(1.0,))
    assert torch.equal(law.contribution(rows), clip(rows, 0.7))


def test_noise_and_density_are_each_layers_own():
    """40,000 reports: five standard errors of a deviation are under 2 %."""
    drawn = LAW.sample(torch.zeros(40_000, 7), np.random.default_rng(0))
    for columns, std in ((drawn[:, :2], 0.1), (drawn[:, 2:5], 3.0), (drawn[:, 5:], 2.0)):
        assert float(columns.std()) == pytest.approx(std, rel=0.02)
    stds = torch.tensor([0.1, 0.1, 3.0, 3.0, 3.0, 2.0, 2.0]).double()
    point = drawn[:5].double()
    by_torch = torch.distributions.Normal(0.5, stds).log_prob(point)
    torch.testing.assert_close(LAW.log_densities(point, torch.full_like(point, 0.5)), by_torch)
    torch.testing.assert_close(LAW.log_density(point, torch.full_like(point, 0.5)), by_torch.sum(-1))


@pytest.mark.parametrize(("dim", "sizes"), [(1, [1, 0, 0]), (4, [2, 2, 0]), (9, [2, 3, 4])])
def test_rows_may_end_in_any_layer(dim, sizes):
    spread = spread_layers(torch.tensor([[1.0, 2.0, 3.0]]), LAW.starts, dim)
    expected = [float(number) for number, size in enumerate(sizes, start=1) for _ in range(size)]
    assert spread.tolist() == [expected]
    assert LAW.contribution(torch.ones(dim)).shape == (dim,)


def test_the_worst_pair_is_twice_every_clip_norm_apart():
    """Scores of it have the joint mu: the root of the sum of (2 C_l / sigma_l)^2."""
    absent, present = LAW.worst_pair(8)
    apart = (LAW.contribution(present) - LAW.contribution(absent)).double()
    stds = spread_layers(torch.tensor(LAW.noise_stds), LAW.starts, 8)
    assert float((apart / stds).norm()) == pytest.approx(math.hypot(2 / 0.1, 4 / 3, 1 / 2), rel=1e-6)
    assert isinstance(LAW, ReportLaw)
    assert LAW.mixing is Mixing.NONE


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
    fields = {"starts": LAW.starts, "clip_norms": LAW.clip_norms, "noise_stds": LAW.noise_stds}
    with pytest.raises(ValueError, match=message):
        LayeredGaussianLaw(**(fields | change))
