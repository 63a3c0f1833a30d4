"""Batch norm in training: the statistics of the drawn lot only, equal to those of PyTorch's own module."""

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary, CanarySet, DataCanary
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams, normal, uniform
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

SHAPE, CLASSES, SAMPLES = (1, 8, 8), 3, 5


def reference(params):
    """lenet_bn for images 8x8, written down again with batch norms that do track and are in train mode."""
    module = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(12),
        nn.LeakyReLU(),
        nn.Conv2d(12, 12, 5, stride=1, padding=2, bias=False),
        nn.BatchNorm2d(12),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(12 * 4 * 4, CLASSES),
    ).to(params.dtype)
    nn.utils.vector_to_parameters(params.clone(), module.parameters())
    return module.train()


def naive_gradient(params, images, labels):
    """Of the mean loss of one lot, by ``backward``."""
    module = reference(params)
    cross_entropy(module(images), labels).backward()
    return torch.cat([weights.grad.flatten() for weights in module.parameters()])


def case(replicas=1, dtype=torch.float32):
    network = Network(model="lenet_bn", shape=SHAPE, classes=CLASSES)
    rng = Streams(6).generator("case")
    params = network.initial(rng) + 0.1 * normal(rng, (replicas, network.layout.dim))
    images = uniform(rng, (replicas, SAMPLES, *SHAPE))
    labels = torch.from_numpy(rng.integers(CLASSES, size=(replicas, SAMPLES)))
    return network, params.to(dtype), images.to(dtype), labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_lots_gradient_is_that_of_pytorchs_own_batch_norm_in_train_mode(replicas, dtype):
    network, params, images, labels = case(replicas, dtype)
    found = network.gradient(params, images, labels, torch.full((replicas, SAMPLES), 1 / SAMPLES, dtype=dtype))
    for r in range(replicas):
        naive = naive_gradient(params[r], images[r], labels[r])
        torch.testing.assert_close(found[r], naive, rtol=1e-5, atol=1e-5)
        assert naive.abs().max() > 0.05


def test_padding_enters_no_statistics():
    """Lots of 5, 2, 1 and none in one batch: the others' images, here far from any real one, stand there unread."""
    network, params, images, labels = case(4, torch.float64)
    sizes = torch.tensor([5, 2, 1, 0])
    there = torch.arange(SAMPLES) < sizes.unsqueeze(1)
    images[~there] = 1e3
    found = network.gradient(params, images, labels, there / sizes.clamp_min(1).unsqueeze(1).double())
    for r, size in enumerate(sizes[:3].tolist()):
        naive = naive_gradient(params[r], images[r, :size], labels[r, :size])
        torch.testing.assert_close(found[r], naive, rtol=1e-9, atol=1e-10)
    assert not found[3].any()


@pytest.mark.parametrize("client_models", [False, True])
def test_lots_side_by_side_have_the_statistics_that_they_have_one_by_one(client_models):
    network, params, images, labels = case(3, torch.float64)
    points = params if client_models else params[0]
    found = network.lot_gradients(points, images, one_hot(labels, CLASSES).double())
    for r in range(3):
        naive = naive_gradient(params[r if client_models else 0], images[r], labels[r])
        torch.testing.assert_close(found[r], naive, rtol=1e-9, atol=1e-10)


def test_lot_statistics_are_what_pytorchs_running_statistics_average():
    """A momentum of 1 keeps the last lot's: of variances the unbiased ones, by n / (n - 1) larger."""
    network, params, images, _ = case(1, torch.float64)
    module = reference(params[0])
    norms = [layer for layer in module if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    module(images[0])
    numbers = SAMPLES * 4 * 4
    found = network.lot_statistics(params[0], images)
    assert len(found) == len(norms) == 2
    for layer, norm in zip(found, norms, strict=True):
        torch.testing.assert_close(layer[0, 0], norm.running_mean)
        torch.testing.assert_close(layer[0, 1] * numbers / (numbers - 1), norm.running_var)


def test_a_model_without_batch_norm_has_no_statistics():
    network = Network(model="lenet", shape=SHAPE, classes=CLASSES)
    assert not network.mixes
    assert network.lot_statistics(torch.zeros(network.layout.dim), torch.zeros(2, 3, *SHAPE)) == ()


def test_evaluation_takes_the_images_together_for_one_lot():
    network, params, images, _ = case(1, torch.float64)
    together = network.logits(params[0], images[0])
    torch.testing.assert_close(together, reference(params[0])(images[0]))
    assert not torch.allclose(network.logits(params[0], images[0, :2]), together[:2], atol=1e-3)


def test_the_common_contrast_of_a_lot_is_not_in_its_gradient():
    """Each image half as bright: the same gradient but for batch norm's own 1e-5; without batch norm another one."""
    network, params, images, labels = case(1, torch.float64)
    hot = one_hot(labels, CLASSES).double()
    full, half = (network.lot_gradients(params[0], factor * images, hot)[0] for factor in (1.0, 0.5))
    assert torch.linalg.vector_norm(full - half) < 1e-3 * torch.linalg.vector_norm(full)
    plain = Network(model="lenet", shape=SHAPE, classes=CLASSES)
    point = plain.initial(Streams(6).generator("plain")).double()
    full, half = (plain.lot_gradients(point, factor * images, hot)[0] for factor in (1.0, 0.5))
    assert torch.linalg.vector_norm(full - half) > 0.1 * torch.linalg.vector_norm(full)


@pytest.mark.parametrize("lot", [Full(), Poisson(0.4)], ids=str)
def test_a_client_trains_on_the_statistics_of_its_drawn_lots(make_task, trained, lot):
    """Two local steps over lots of unequal sizes, replayed with PyTorch's module; an empty lot changes nothing."""
    task, algorithm = make_task(model="lenet_bn", side=8), FedAvg(learning_rate=0.1, local_steps=2)
    (event,) = trained(task=task, seed=3, rounds=1, lot=lot, algorithm=algorithm).events
    sizes = set()
    for row, client in enumerate(event.reports.senders):
        local = start = event.broadcast[0]
        for mask in event.lots[client]:
            drawn = task.parts[client][mask[0]]
            sizes.add(len(drawn))
            if len(drawn):
                local = local - 0.1 * naive_gradient(local, task.images[drawn], task.labels[drawn])
        torch.testing.assert_close(event.reports.values[0, row], local - start, rtol=1e-4, atol=1e-5)
    assert len(sizes) > 2  # Else the padding would not have been tried.


def test_samples_have_no_gradients_of_their_own(make_task, trained):
    network, params, images, labels = case()
    with pytest.raises(ValueError, match="under model lenet_bn batch norm mixes the samples of a batch, so no sample"):
        network.sample_gradients(params, images, labels)

    class PerSample(Protection):
        per_sample = True

    task = make_task(model="lenet_bn", side=8)
    with pytest.raises(ValueError, match="PerSample needs a separate gradient for each sample, but under model"):
        trained(PerSample(), task=task)
    planted = task.with_inert(2)
    row = torch.zeros(planted.network.layout.dim)
    image, label = task.images[:1], task.labels[:1]
    for canary in (
        Canary(unit=Unit.SAMPLE, present=row),
        DataCanary(unit=Unit.SAMPLE, images=image, present=label),
        CanarySet(unit=Unit.SAMPLE, length=1.0, dim=len(row), coins=torch.tensor([True, False])),
    ):
        with pytest.raises(ValueError, match="a canary that is a sample needs a separate gradient for each sample"):
            trained(task=planted, canary=canary)


def test_a_canary_that_is_a_client_trains_on_its_own_lot(make_task, trained):
    task = make_task(model="lenet_bn", side=8)
    canary = DataCanary(unit=Unit.CLIENT, images=task.outsider_images[:2], present=task.outsider_labels[:2])
    options = {"rounds": 1, "algorithm": FedSGD(learning_rate=1.0)}
    (event,) = trained(task=task, seed=3, arm=1, canary=canary, **options).events
    naive = naive_gradient(event.broadcast[0], task.outsider_images[:2], task.outsider_labels[:2])
    torch.testing.assert_close(event.reports.values[0, -1], -naive, rtol=1e-4, atol=1e-5)
