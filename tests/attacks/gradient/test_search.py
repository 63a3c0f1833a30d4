"""Search: Adam by hand, ties, candidates that are no numbers, grey and colour alike."""

import numpy as np
import pytest
import torch
from fedassay.attacks.gradient.search import Cosine, Search, best_restarts, total_variation
from fedassay.fl.models.network import Network
from fedassay.fl.streams import normal, uniform
from torch import Tensor


def bowl(images: Tensor) -> Tensor:
    """Least at .3 in every pixel."""
    return (images - 0.3).square().flatten(1).sum(1)


@pytest.mark.parametrize("signed", [True, False])
def test_the_search_takes_the_steps_of_torchs_adam(signed: bool) -> None:
    """Ten steps in two pixels, clamped to [0, 1], compared with PyTorch's own optimiser."""
    start = torch.tensor([0.9, 0.05], dtype=torch.float64).view(1, 1, 1, 1, 2)
    point = start.clone().requires_grad_(True)
    adam = torch.optim.Adam([point], lr=0.2)
    decay = torch.optim.lr_scheduler.MultiStepLR(adam, [3, 6, 8], gamma=0.1)
    for _ in range(10):
        (slope,) = torch.autograd.grad(bowl(point).sum(), point)
        point.grad = slope.sign() if signed else slope
        adam.step()
        decay.step()
        with torch.no_grad():
            point.clamp_(0, 1)
    found = Search(iterations=10, learning_rate=0.2, signed=signed).run(bowl, start)
    torch.testing.assert_close(found, point.detach(), atol=1e-6, rtol=0)


def test_of_equal_restarts_the_first_is_kept_and_one_that_is_no_number_never() -> None:
    objectives = torch.tensor([2.0, 1.0, 1.0, torch.nan, 5.0, torch.inf])
    assert best_restarts(lambda images: objectives, torch.zeros(6, 1, 1, 2, 2), 3).tolist() == [1, 4]
    assert best_restarts(lambda images: objectives, torch.zeros(6, 1, 1, 2, 2), 2).tolist() == [1, 2, 4]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gradient_of_the_image_itself_has_no_distance_whatever_its_sign_and_length(channels: int) -> None:
    """Three times the gradient: cosine 1; its negative: cosine -1."""
    network, rng = Network(model="lenet", shape=(channels, 8, 8), classes=4), np.random.default_rng(0)
    model, images = network.initial(rng), uniform(rng, (2, 1, channels, 8, 8))
    labels = torch.eye(4)[[0, 3]].unsqueeze(1)
    rows = network.lot_gradients(model, images, labels)
    cosine = Cosine(network=network, model=model, gradients=3 * rows, labels=labels, total_variation=0.0)
    torch.testing.assert_close(cosine.values(images), torch.zeros(2), atol=1e-6, rtol=0)
    wrong = Cosine(network=network, model=model, gradients=-rows, labels=labels, total_variation=0.5)
    expected = 2 + 0.5 * total_variation(images)
    torch.testing.assert_close(wrong.values(images), expected, atol=1e-6, rtol=0)


def test_total_variation_of_a_colour_lot_is_the_mean_of_its_images_and_channels() -> None:
    images = uniform(np.random.default_rng(0), (2, 3, 3, 5, 5))
    each = total_variation(images.flatten(0, 2).view(18, 1, 1, 5, 5)).view(2, 9).mean(1)
    torch.testing.assert_close(total_variation(images), each)


def test_the_slope_of_the_cosine_is_that_of_its_formula() -> None:
    network = Network(model="lenet", shape=(1, 8, 8), classes=10, inert=2)
    rng, d = np.random.default_rng(0), network.layout.dim
    model, gradients, rows = (normal(rng, (*lead, d), dtype=torch.float64) for lead in ((), (3,), (3,)))
    cosine = Cosine(
        network=network, model=model, gradients=gradients, labels=torch.eye(10)[:3].unsqueeze(1), total_variation=0.0
    )
    weights, point = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), rows.clone().requires_grad_(True)
    (ours,) = torch.autograd.grad((weights * cosine.cosines(point)).sum(), point)
    kept = network.layout.model_dim
    naive = torch.cosine_similarity(point[:, :kept], gradients[:, :kept], dim=1)
    (theirs,) = torch.autograd.grad((weights * naive).sum(), point)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    assert (ours[:, kept:] == 0).all()
