"""Gradient inversion: equal to a naive version, right without a defense, useless under noise, blind to the truth.

Search: Adam by hand, ties, candidates that are no numbers, grey and colour alike.

Searches in parts: what one batch holds changes no find by a bit, and holds no more than it may.
"""

from functools import cache

import numpy as np
import pytest
import torch
from digits_federation import digits_run, with_uploads
from fedassay.attacks.gradient import search
from fedassay.attacks.gradient.dlg import DLG
from fedassay.attacks.gradient.fedavg_inversion import FedAvgInversion
from fedassay.attacks.gradient.grad_inversion import GradInversion
from fedassay.attacks.gradient.image_attack import ImageLots
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.search import Cosine, Search, best_restarts, total_variation, upload_parts
from fedassay.attacks.labels.idlg import inferred_labels
from fedassay.attacks.uploads import read_uploads
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.streams import uniform

CLIENTS = 4


@cache
def federation(model="lenet", inert=0):
    return digits_run(model, CLIENTS, inert=inert, algorithm=FedSGD(learning_rate=0.1))


def uploads(view):
    reports = view.rounds[0].reports
    return reports.values


def normal_like(values, seed):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(values.shape), dtype=np.float32))


def truth(task):
    held = torch.cat(task.parts)
    return task.images[held].numpy(), task.labels[held].numpy()


def median_psnr(evidence, task):
    errors = ((evidence.images - truth(task)[0]) ** 2).mean((1, 2, 3))
    return float(np.median(-10 * np.log10(errors + 1e-10)))


def invert(attack, view, knowledge, seed=0):
    return attack.run(view, knowledge, np.random.default_rng(seed))


def naive_search(attack, network, model, target, label, image):
    """One candidate at a time, with PyTorch's own Adam and step decay."""
    image = image.clone().requires_grad_(True)
    adam = torch.optim.Adam([image], lr=attack.learning_rate)
    decays = [int(attack.iterations * share / 8) for share in (3, 5, 7)]
    decay = torch.optim.lr_scheduler.MultiStepLR(adam, decays, gamma=0.1)

    def objective():
        weights = model.clone().requires_grad_(True)
        loss = network.losses(weights, image[None], torch.tensor([label])).sum()
        (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
        down, across = image.diff(dim=-2).abs().mean(), image.diff(dim=-1).abs().mean()
        cosine = (gradient @ target) / (gradient.norm() * target.norm())
        return 1 - cosine + attack.total_variation * (down + across)

    for _ in range(attack.iterations):
        (slope,) = torch.autograd.grad(objective(), image)
        image.grad = slope.sign()
        adam.step()
        decay.step()
        with torch.no_grad():
            image.clamp_(0, 1)
    return image.detach(), float(objective().detach())


@pytest.mark.parametrize("model", ["lenet", "logistic"])
def test_the_batch_agrees_with_one_candidate_at_a_time(model):
    task, view, knowledge = federation(model)
    attack = GradientInversion(iterations=3, restarts=2)
    together = invert(attack, view, knowledge)
    start = uniform(np.random.default_rng(0), (CLIENTS, 2, *task.network.shape))
    broadcast = view.rounds[0].broadcast
    for client, label in enumerate(truth(task)[1].tolist()):
        target = -uploads(view)[0, client]
        runs = [naive_search(attack, task.network, broadcast[0], target, label, image) for image in start[client]]
        best = min(runs, key=lambda run: run[1])[0]
        # Where the slope is next to 0, rounding decides the sign of the step.
        assert np.isclose(together.images[client], best.numpy(), atol=1e-5).mean() > 0.98


@pytest.mark.simulations
def test_an_undefended_upload_gives_its_image_away():
    """Observed: median 36.8 dB; the mean image has 11.0."""
    task, view, knowledge = federation()
    found = invert(GradientInversion(), view, knowledge)
    null = MeanImage().run(view, knowledge, np.random.default_rng(0))
    assert median_psnr(found, task) > median_psnr(null, task) + 15
    np.testing.assert_array_equal(found.labels, truth(task)[1])


@pytest.mark.simulations
def test_the_restart_of_least_objective_is_kept_even_where_another_is_nearer_to_the_truth():
    task, view, knowledge = federation()
    noisy = with_uploads(view, uploads(view) + 0.2 * normal_like(uploads(view), seed=0))
    attack = GradientInversion(iterations=20, restarts=6)
    seen = read_uploads(noisy, knowledge, 0)
    labels = inferred_labels(seen.gradients, task.network.layout)
    objective = Cosine(
        network=task.network,
        model=seen.model,
        gradients=seen.gradients.repeat_interleave(6, 0),
        labels=torch.eye(10)[labels].repeat_interleave(6, 0).unsqueeze(1),
        total_variation=attack.total_variation,
    )
    search = Search(iterations=20, learning_rate=attack.learning_rate, signed=True)
    start = uniform(np.random.default_rng(0), (CLIENTS * 6, 1, *task.network.shape))
    candidates = search.run(objective.values, start)
    kept = best_restarts(objective.values, candidates, 6)
    errors = ((candidates.view(CLIENTS, 6, -1) - torch.from_numpy(truth(task)[0]).view(CLIENTS, 1, -1)) ** 2).mean(2)
    assert not torch.equal(kept - 6 * torch.arange(CLIENTS), errors.argmin(1))
    np.testing.assert_array_equal(invert(attack, noisy, knowledge).images, candidates[kept, 0].numpy())


def test_the_length_of_an_upload_does_not_matter():
    _, view, knowledge = federation()
    attack = GradientInversion(iterations=3)
    shorter = invert(attack, with_uploads(view, uploads(view) / 64), knowledge)
    np.testing.assert_allclose(invert(attack, view, knowledge).images, shorter.images, atol=1e-5)


def test_noise_on_unused_weights_does_not_matter():
    _, view, knowledge = federation(inert=500)
    values = uploads(view).clone()
    values[..., knowledge.network.layout.model_dim :] = 100 * normal_like(values, seed=0)[..., :500]
    attack = GradientInversion(iterations=3)
    noisy = invert(attack, with_uploads(view, values), knowledge)
    np.testing.assert_array_equal(invert(attack, view, knowledge).images, noisy.images)


def test_total_variation_of_a_step_is_its_height_over_the_pairs():
    """3x3 image with one dark column: 3 of 6 pairs across differ by .5, no pair down does."""
    image = torch.full((1, 1, 3, 3), 0.5)
    image[..., 0] = 0
    assert total_variation(image).tolist() == [0.25]


def test_the_learning_rate_falls_tenfold_at_each_of_three_marks():
    search = Search(iterations=8, learning_rate=1.0, signed=True)
    rates = [search.rate(step) for step in range(1, 9)]
    np.testing.assert_allclose(rates, [1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize(("bad", "fault"), [(0.0, "all zeros"), (float("nan"), "not finite")])
def test_an_upload_that_is_no_gradient_is_refused(bad, fault):
    _, view, knowledge = federation()
    values = uploads(view).clone()
    values[0, 2] = bad
    with pytest.raises(ValueError, match=rf"{fault} from clients \[2\]"):
        invert(GradientInversion(iterations=1), with_uploads(view, values), knowledge)


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


@cache
def searched(model="lenet"):
    """Four uploads of three images each, with next to no noise; with none where the model draws or mixes."""
    protection = DPSGDProtection(clip_norm=1.0, noise_multiplier=1e-3) if model == "lenet" else Protection()
    return digits_run(model, 4, 12, protection=protection)[1:]


def found(attack, model="lenet"):
    return attack.run(*searched(model), np.random.default_rng(0)).images


@pytest.mark.simulations
@pytest.mark.parametrize("attack", [GradientInversion, MapInversion, GradInversion, FedAvgInversion, DLG])
def test_finds_are_the_same_up_to_rounding_however_few_uploads_are_in_a_part(attack, monkeypatch):
    """All four uploads at once, two and two, one by one; GradInversion's restarts still pull each other."""
    whole = found(attack(iterations=8, restarts=2))
    for held, parts in ((2 * 2 * 3 * 6500, 2), (1, 4)):
        monkeypatch.setattr(search, "_HELD", held)
        assert len(upload_parts(8, 2, 3 * (5854 + 64))) == parts
        # Some processors sum rows of a smaller matrix in another order.
        np.testing.assert_allclose(found(attack(iterations=8, restarts=2)), whole, rtol=0, atol=1e-3)


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
