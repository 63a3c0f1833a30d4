"""The model of texts: no place depends on later ones, and every way to sample gradients agrees with a loop."""

import numpy as np
import pytest
import torch
from fedassay.fl.models.layers import Normalisation
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.streams import Streams

LENGTH, TOKENS = 6, 9


def network(**more):
    return Network(
        model="text_transformer",
        shape=(1, 1, LENGTH),
        classes=TOKENS,
        task="next_token",
        options={"width": 8, "heads": 2},
        **more,
    )


def texts(*size, seed=0):
    rng = np.random.default_rng(seed)
    drawn = torch.from_numpy(rng.integers(TOKENS, size=(*size, LENGTH + 1)))
    return drawn[..., None, None, :-1].float(), drawn[..., 1:].contiguous()


def initial(net, seed=0):
    # Larger than at the start, where attention is all but even.
    return 2 * net.initial(Streams(seed).generator("init"))


def test_its_size_is_the_hand_computed_one():
    block = 4 * 64 + (64 + 1) * 192 + (64 + 1) * 64 + (64 + 1) * 256 + (256 + 1) * 64
    model = build_model("text_transformer", shape=(1, 1, 32), classes=65)
    assert sum(one.numel() for one in model.parameters()) == 65 * 64 + 32 * 64 + 2 * block + 128 + 65 * 65


def test_a_place_depends_on_itself_and_earlier_places_alone():
    net = network()
    params, (images, _) = initial(net), texts(1)
    before = net.logits(params, images)[0]
    for place in range(LENGTH):
        changed = images.clone()
        changed[..., place] = (changed[..., place] + 1) % TOKENS
        moved = (net.logits(params, changed)[0] - before).abs().amax(1)
        assert bool((moved[:place] == 0).all())
        assert bool((moved[place:] > 1e-5).all())


def test_the_loss_is_the_mean_cross_entropy_over_places():
    net = network()
    params, (images, labels) = initial(net), texts(3)
    logits = net.logits(params, images)
    naive = [
        sum(-logits[n, place].log_softmax(0)[labels[n, place]] for place in range(LENGTH)) / LENGTH for n in range(3)
    ]
    torch.testing.assert_close(net.losses(params, images, labels), torch.stack(naive))
    assert net.objective.found(logits).shape == labels.shape


def test_images_and_scaled_tokens_are_refused():
    with pytest.raises(ValueError, match=r"needs texts, .* got shape \(1, 8, 8\)"):
        build_model("text_transformer", shape=(1, 8, 8), classes=10)
    with pytest.raises(ValueError, match="tokens are not scaled"):
        network(normalisation=Normalisation(mean=(0.5,), std=(1.0,)))
    rows = Network(model="text_transformer", shape=(1, 1, LENGTH), classes=TOKENS)
    with pytest.raises(ValueError, match=r"must return logits \(n, 9\)"):
        rows.objective  # noqa: B018
