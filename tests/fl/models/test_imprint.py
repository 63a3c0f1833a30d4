"""Imprint layer: what it measures, where its thresholds lie, and that a planted model trains like another."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.layers import direction, planted, thresholds
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from torch.func import functional_call

SHAPE = (1, 3, 3)


@pytest.fixture
def public() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((80, *SHAPE), dtype=np.float32))


def test_bins_hold_equal_shares_of_the_public_images(public: torch.Tensor) -> None:
    measured = public.flatten(1).double() @ direction(9)
    held = torch.bucketize(measured, torch.tensor(thresholds(public, 8), dtype=torch.float64))
    assert torch.bincount(held).tolist() == [0] + [10] * 8  # Nothing lies below the first threshold.


def test_no_image_measures_less_than_the_first_threshold(public: torch.Tensor) -> None:
    darkest = (direction(9) < 0).double()
    assert -1 < float(darkest @ direction(9)) < 0
    assert thresholds(public, 8)[0] == -1.0


def test_two_digits_measure_alike_in_brightness_and_not_by_the_direction() -> None:
    images = load_dataset("digits").train_images.flatten(1).double()
    brightness = images.sum(1).mul(16).round()
    assert len(brightness.unique()) < len(images) / 4
    assert len((images @ direction(64)).unique()) > 0.99 * len(images)


def test_rows_are_lit_above_their_threshold_and_brighten_the_image_by_their_mean(public: torch.Tensor) -> None:
    """Hand-computed: (sum over rows of relu(h - t)) / rows is added to each pixel."""
    limits = thresholds(public, 4)
    module = build_model("imprint", shape=SHAPE, classes=3, bins=4).get_submodule("imprint")
    own = {name.removeprefix("imprint."): value for name, value in planted(SHAPE, limits).items()}
    seen = functional_call(module, own, (public,))
    measured = public.flatten(1).double() @ direction(9)
    added = (measured[:, None] - torch.tensor(limits, dtype=torch.float64)).clamp_min(0).mean(1)
    torch.testing.assert_close(seen.double(), public.double() + added.view(-1, 1, 1, 1), atol=1e-6, rtol=0)


def test_a_sample_moves_every_row_that_it_lights_alike_and_no_other(public: torch.Tensor) -> None:
    network = Network(model="imprint", shape=SHAPE, classes=3, bins=thresholds(public, 8))
    model = network.initial(np.random.default_rng(1))
    rows = network.sample_gradients(model[None], public[None, :5], torch.tensor([[0, 1, 2, 0, 1]]))[0]
    biases = network.layout.unflatten(rows)["imprint.bins.bias"]
    lit = (public[:5].flatten(1).double() @ direction(9))[:, None] > torch.tensor(network.bins, dtype=torch.float64)
    assert torch.equal(biases != 0, lit)
    for row, mask in zip(biases, lit, strict=True):
        torch.testing.assert_close(row[mask], row[mask][:1].expand(int(mask.sum())), atol=0, rtol=1e-5)


def test_the_model_behind_starts_where_it_would_without_a_trap(public: torch.Tensor) -> None:
    """Only the trap is the server's choice: the rest is drawn as every model's is."""
    network = Network(model="imprint", shape=SHAPE, classes=3, bins=thresholds(public, 8))
    first, other = (network.layout.unflatten(network.initial(np.random.default_rng(seed))) for seed in (1, 2))
    same = {name for name in first if torch.equal(first[name], other[name])}
    assert same == set(planted(SHAPE, network.bins))


@pytest.mark.parametrize(("model", "bins"), [("imprint", ()), ("mlp", (-1.0, 0.0))])
def test_thresholds_belong_to_a_model_with_an_imprint_layer(model: str, bins: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"must be given for model imprint and no other, got {len(bins)} for {model}"):
        Network(model=model, shape=SHAPE, classes=3, bins=bins)
