"""Search: Adam by hand, ties, candidates that are no numbers, grey and colour alike.

Searches in parts: what one batch holds changes no find by a bit, and holds no more than it may.
"""

from functools import cache

import numpy as np
import pytest
import torch
from digits_federation import digits_run
from fedassay.attacks.gradient import search
from fedassay.attacks.gradient.dlg import DLG
from fedassay.attacks.gradient.fedavg_inversion import FedAvgInversion
from fedassay.attacks.gradient.grad_inversion import GradInversion
from fedassay.attacks.gradient.image_attack import ImageLots
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.search import Cosine, Search, best_restarts, total_variation, upload_parts
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal, uniform


def bowl(images):
    """Least at .3 in every pixel."""
    return (images - 0.3).square().flatten(1).sum(1)


@pytest.mark.parametrize("signed", [True, False])
def test_the_search_takes_the_steps_of_torchs_adam(signed):
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


def test_of_equal_restarts_the_first_is_kept_and_one_that_is_no_number_never():
    objectives = torch.tensor([2.0, 1.0, 1.0, torch.nan, 5.0, torch.inf])
    assert best_restarts(lambda images: objectives, torch.zeros(6, 1, 1, 2, 2), 3).tolist() == [1, 4]
    assert best_restarts(lambda images: objectives, torch.zeros(6, 1, 1, 2, 2), 2).tolist() == [1, 2, 4]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gradient_of_the_image_itself_has_no_distance_whatever_its_sign_and_length(channels):
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


def test_total_variation_of_a_colour_lot_is_the_mean_of_its_images_and_channels():
    images = uniform(np.random.default_rng(0), (2, 3, 3, 5, 5))
    each = total_variation(images.flatten(0, 2).view(18, 1, 1, 5, 5)).view(2, 9).mean(1)
    torch.testing.assert_close(total_variation(images), each)


def test_the_slope_of_the_cosine_is_that_of_its_formula():
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


@cache
def federation(model="lenet"):
    """Four uploads of three images each, with next to no noise; with none where the model draws or mixes."""
    protection = DPSGDProtection(clip_norm=1.0, noise_multiplier=1e-3) if model == "lenet" else Protection()
    return digits_run(model, 4, 12, protection=protection)[1:]


def found(attack, model="lenet"):
    return attack.run(*federation(model), np.random.default_rng(0)).images


@pytest.mark.simulations
@pytest.mark.parametrize("attack", [GradientInversion, MapInversion, GradInversion, FedAvgInversion, DLG])
def test_finds_are_the_same_bit_for_bit_however_few_uploads_are_in_a_part(attack, monkeypatch):
    """All four uploads at once, two and two, one by one; GradInversion's restarts still pull each other."""
    whole = found(attack(iterations=8, restarts=2))
    for held, parts in ((2 * 2 * 3 * 6500, 2), (1, 4)):
        monkeypatch.setattr(search, "_HELD", held)
        assert len(upload_parts(8, 2, 3 * (5854 + 64))) == parts
        np.testing.assert_array_equal(found(attack(iterations=8, restarts=2)), whole)


def test_parts_are_whole_uploads_and_as_large_as_they_may(monkeypatch):
    """100 numbers bear three restarts of 10 thrice; one upload that is too large stands alone."""
    monkeypatch.setattr(search, "_HELD", 100)
    assert upload_parts(21, 3, 10) == [slice(0, 9), slice(9, 18), slice(18, 21)]
    assert upload_parts(6, 3, 34) == [slice(0, 3), slice(3, 6)]
    assert upload_parts(0, 3, 10) == []


def test_no_batch_of_a_search_holds_more_than_it_may(monkeypatch):
    """Gradients of 40 numbers and images of 10, of lots of two: 100 numbers a candidate."""
    monkeypatch.setattr(search, "_HELD", 450)
    sizes = list[int]()

    def objective(part):
        def values(images):
            sizes.append(len(images))
            return images.square().flatten(1).sum(1)

        return values

    start = ImageLots(images=torch.full((14, 2, 1, 2, 5), 0.5), labels=torch.arange(14).unsqueeze(1).expand(-1, 2))
    kept = GradientInversion(iterations=2, restarts=2).search(objective, start, 40)
    assert max(sizes) * (2 * 40 + 20) <= 450
    # Of equal restarts the first is kept, whichever part it is in.
    assert kept.labels[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12]
