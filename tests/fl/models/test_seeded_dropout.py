"""Dropout with a seed per sample: rates, independence and equal masks in a batch, alone and mapped."""

import pytest
import torch
from fedassay.fl.models.layers import SeededDropout, SeededModel, with_seeded_dropout
from fedassay.fl.streams import Streams
from torch import nn
from torch.func import vmap


def seeds(count):
    return torch.from_numpy(Streams(4).generator("dropout").integers(2**63, size=(count, 1)))


def dropped(layer, features, given):
    layer.begin(given)
    return layer(features)


def test_masks_are_the_same_in_a_batch_alone_and_mapped():
    layer, features, given = SeededDropout(0.3, 0), torch.rand(5, 4, 6), seeds(5)
    batch = dropped(layer, features, given)
    alone = torch.cat([dropped(layer, features[i : i + 1], given[i : i + 1]) for i in range(5)])
    mapped = vmap(lambda x, seed: dropped(layer, x[None], seed[None])[0])(features, given)
    assert torch.equal(batch, alone)
    assert torch.equal(batch, mapped)


def test_a_feature_is_dropped_with_the_rate_and_the_mean_is_kept():
    layer = SeededDropout(0.3, 0)
    kept = dropped(layer, torch.ones(400, 250), seeds(400))
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    # A hundred thousand coins: five standard deviations.
    assert float((kept == 0).float().mean()) == pytest.approx(0.3, abs=5 * (0.21 / 1e5) ** 0.5)


def test_samples_layers_calls_and_neighbouring_places_draw_independently():
    given, ones = seeds(400), torch.ones(400, 250)
    first, second = SeededDropout(0.5, 0), SeededDropout(0.5, 1)
    one = dropped(first, ones, given)
    again = first(ones)
    masks = [mask.sub(1) for mask in (one, again, dropped(second, ones, given))]
    masks += [masks[0].roll(1, 0), masks[0].roll(1, 1)]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            # The mean of a hundred thousand products of +-1.
            assert abs(float((mask * other).mean())) < 5 / 1e5**0.5


def test_whole_channels_are_dropped_where_pytorch_would():
    model = with_seeded_dropout(nn.Sequential(nn.Dropout2d(0.5)))
    found = model(torch.ones(50, 8, 3, 3), seeds(50)).flatten(2)
    assert torch.equal(found.amin(2), found.amax(2))
    assert 0.3 < float((found[..., 0] == 0).float().mean()) < 0.7


def test_without_seeds_nothing_is_dropped_and_a_model_without_dropout_is_unchanged():
    model = with_seeded_dropout(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)))
    images = torch.rand(4, 3)
    assert torch.equal(model(images), model.model[0](images))
    model(images, seeds(4))
    assert torch.equal(model(images), model.model[0](images))
    plain = nn.Sequential(nn.Linear(3, 2))
    assert with_seeded_dropout(plain) is plain


def test_seeds_are_repeated_by_their_stream():
    model = with_seeded_dropout(nn.Sequential(nn.Dropout(0.25), nn.Dropout(0.5)))
    assert isinstance(model, SeededModel)
    assert model.rate == 0.5
    draws = [model.draw(Streams(1).generator("dropout"), (2, 3)) for _ in range(2)]
    assert torch.equal(*draws)
    assert draws[0].shape == (2, 3, 1)
    assert len(draws[0].unique()) == 6


def test_a_layer_that_does_not_see_the_batch_first_is_refused():
    layer = SeededDropout(0.5, 0)
    with pytest.raises(ValueError, match=r"first dimension .* got input \(7, 2\) for 3 samples"):
        dropped(layer, torch.ones(7, 2), seeds(3))
