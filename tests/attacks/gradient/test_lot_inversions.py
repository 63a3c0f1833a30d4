"""Inversion of lots: GradInversion and FedAvg's, the labels that they start from, the local steps that they retell."""

import numpy as np
import pytest
import torch
from digits_federation import digits_run, matched_psnr
from fedassay.attacks.attack import Undefined
from fedassay.attacks.gradient.class_mean_image import ClassMeanImage
from fedassay.attacks.gradient.fedavg_inversion import FedAvgInversion
from fedassay.attacks.gradient.grad_inversion import GradInversion, discord, unique_labels
from fedassay.attacks.gradient.image_attack import lot_labels, samples_behind, simulated_updates
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.fl.algorithms import FedAvg, FedProx, FedSGD, Scaffold
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.network import Network
from fedassay.fl.sampling import FixedSize, Poisson
from torch.nn.functional import one_hot


def federation(algorithm, *, clients, samples, model="lenet", **changes):
    return digits_run(model, clients, clients * samples, algorithm=algorithm, **changes)


@pytest.mark.simulations
def test_lots_of_two_come_back_as_two_images():
    """Observed: median 30.6 dB; the mean image has about 11."""
    task, view, knowledge = federation(FedSGD(learning_rate=1.0), clients=3, samples=2)
    found = GradInversion(iterations=100, restarts=2).run(view, knowledge, np.random.default_rng(0))
    assert found.uploads.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.median(matched_psnr(found.images, task)) > 15


@pytest.mark.simulations
def test_local_steps_are_simulated_where_one_gradient_would_mislead():
    """Five steps of .3 on one image, held to be one gradient or simulated: observed 10.1 and 18.5 dB."""
    task, view, knowledge = federation(FedAvg(learning_rate=0.3, local_steps=5), clients=3, samples=1)
    through, flat = (
        attack.run(view, knowledge, np.random.default_rng(0)).images
        for attack in (FedAvgInversion(iterations=60), GradientInversion(iterations=60))
    )
    assert matched_psnr(through, task).mean() > matched_psnr(flat, task).mean() + 3


@pytest.mark.parametrize(
    "algorithm",
    [
        FedSGD(learning_rate=1.0),
        FedAvg(learning_rate=0.2, local_steps=3),
        FedProx(learning_rate=0.2, local_steps=3, mu=0.5),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_simulating_the_true_lot_gives_the_upload_itself(algorithm):
    task, view, knowledge = federation(algorithm, clients=2, samples=3, model="mlp")
    held = torch.stack([task.images[part] for part in task.parts])
    labels = one_hot(torch.stack([task.labels[part] for part in task.parts]), 10).float()
    seen = view.rounds[0]
    simulated = simulated_updates(task.network, knowledge.plan, 0, seen.broadcast[0], held, labels)
    torch.testing.assert_close(simulated, seen.reports.values[0], rtol=1e-3, atol=1e-6)


def test_steps_on_part_of_the_samples_go_through_them_in_turn():
    """Two steps on two of four: the first two samples, then the others, by hand."""
    algorithm = FedAvg(learning_rate=0.2, local_steps=2)
    task, view, knowledge = federation(algorithm, clients=1, samples=4, model="mlp", lot=FixedSize(2))
    network, images, labels = task.network, task.images[None], one_hot(task.labels, 10).float()[None]
    start = network.initial(np.random.default_rng(0))
    halfway = start - 0.2 * network.lot_gradients(start, images[:, :2], labels[:, :2])[0]
    end = halfway - 0.2 * network.lot_gradients(halfway, images[:, 2:], labels[:, 2:])[0]
    simulated = simulated_updates(network, knowledge.plan, 0, start, images, labels)
    torch.testing.assert_close(simulated[0], end - start)
    found = FedAvgInversion(iterations=2, restarts=1).run(view, knowledge, np.random.default_rng(0))
    assert found.images.shape == (4, 1, 8, 8)


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (FedAvg(learning_rate=0.2, local_steps=2, optimizer="adam"), "Adam's local steps"),
        (Scaffold(learning_rate=0.2, local_steps=2), "does not observe a client's control variate"),
    ],
    ids=["adam", "scaffold"],
)
def test_steps_that_cannot_be_simulated_are_refused(algorithm, says):
    _, view, knowledge = federation(algorithm, clients=2, samples=1, model="mlp")
    with pytest.raises(Undefined, match=says):
        FedAvgInversion(iterations=1).run(view, knowledge, np.random.default_rng(0))


@pytest.mark.parametrize("k", [1, 2, 4, 16])
def test_labels_of_lots_are_counted_from_an_untrained_models_bias(k):
    """Thirty lots of k digits, more than classes at 16: at least nine tenths of the labels are right."""
    data, rng = load_dataset("digits"), np.random.default_rng(0)
    network = Network(model="mlp", shape=(1, 8, 8), classes=10)
    model = network.initial(rng)
    chosen = torch.from_numpy(rng.integers(len(data.train_labels), size=(30, k)))
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    rows = network.lot_gradients(model, images, one_hot(labels, 10).float())
    found = lot_labels(rows, model, network, k, data.test_images)
    assert found.shape == (30, k)
    counts, truth = one_hot(found, 10).sum(1), one_hot(labels, 10).sum(1)
    assert torch.minimum(counts, truth).sum() / (30 * k) >= 0.9


def test_labels_that_nothing_points_to_still_number_k():
    """A bias gradient above every mean: all shares are cut to zero, and labels are divided equally; ties go to the
    first classes."""
    network = Network(model="logistic", shape=(1, 3, 3), classes=4)
    model = torch.zeros(network.layout.dim)
    rows = torch.zeros(2, network.layout.dim)
    rows[0, -4:] = 1.0
    found = lot_labels(rows, model, network, 6, torch.zeros(1, 1, 3, 3))
    assert found.tolist() == [[0, 0, 1, 1, 2, 3]] * 2


def test_how_many_samples_stand_behind_an_upload_is_read_off_the_plan(toy_task, toy_plan):
    task = toy_task((4, 6))
    steps = FedAvg(learning_rate=0.1, local_steps=2)
    assert samples_behind(toy_plan(task), 1) == 6
    assert samples_behind(toy_plan(task, lot=FixedSize(2)), 1) == 2
    assert samples_behind(toy_plan(task, lot=FixedSize(2), algorithm=steps), 1) == 4
    assert samples_behind(toy_plan(task, lot=FixedSize(5), algorithm=steps), 1) == 6
    assert samples_behind(toy_plan(task, lot=Poisson(0.01)), 1) == 1


def test_restarts_agree_on_images_whose_label_comes_once():
    """Two restarts, 1 apart in every pixel, are each 1/2 from their mean; the doubled label does not count."""
    known = unique_labels(torch.tensor([[1, 2, 2], [1, 2, 2]]), 3)
    assert known.tolist() == [[True, False, False]] * 2
    images = torch.zeros(2, 3, 1, 4, 4)
    images[1] = 1
    assert discord(images, known, 2).tolist() == [0.25, 0.25]
    assert discord(images, known, 1).tolist() == [0.0, 0.0]
    assert discord(images, torch.zeros(2, 3, dtype=torch.bool), 2).tolist() == [0.0, 0.0]


def test_the_class_mean_is_of_the_label_that_the_upload_shows():
    task, view, knowledge = federation(FedSGD(learning_rate=1.0), clients=4, samples=1)
    found = ClassMeanImage().run(view, knowledge, np.random.default_rng(0))
    held = torch.cat(list(task.parts))
    for image, label in zip(found.images, task.labels[held].tolist(), strict=True):
        mean = task.test_images[task.test_labels == label].mean(0)
        np.testing.assert_allclose(image, mean.numpy(), atol=1e-6)
