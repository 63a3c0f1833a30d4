"""Imprint attack: exact for images alone in their bin, from uploads and from a secure sum, and nothing under noise."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from digits_federation import dealt_digits, received
from fedassay.attacks.attack import Knowledge, Undefined
from fedassay.attacks.gradient.imprint import Imprint, binned_images
from fedassay.attacks.uploads import reduce_view
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.models.layers import direction
from fedassay.fl.recorder import View
from fedassay.fl.task import Task
from toy_federation import toy_plan

EXACT = 1 / 32
"""A digit's pixels are sixteenths: with smaller errors, rounding gives the very image. Single precision stays below
0.01 here.
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    task: Task
    view: View
    knowledge: Knowledge


def digits(observer=UPLOADS, *, clients=2, samples=64, model="imprint", algorithm=None, epsilon=None, rounds=1, seed=0):
    """Digits dealt evenly, full lots, seen by ``observer``; under dp_sgd if an epsilon is given."""
    defense = Undefended() if epsilon is None else DPSGD(epsilon=epsilon, delta=1e-5)
    task = dealt_digits(model, clients, samples, seed=seed)
    plan = toy_plan(task, rounds=rounds, algorithm=algorithm or FedSGD(learning_rate=0.5))
    protection = defense.prepare(plan).protection
    view = received(task, plan, protection, observer=observer, seed=seed)
    return Run(task=task, view=view, knowledge=Knowledge.of(task, plan, protection))


def attacked(run):
    """Images found and the upload of each."""
    reduced = reduce_view(run.view, run.knowledge)
    found = Imprint().run(reduced.view, reduced.knowledge, np.random.default_rng(0))
    assert found.uploads is not None
    assert found.setting.observer == run.view.observer
    return torch.from_numpy(found.images.astype(np.float32)), found.uploads


def alone(images, bins):
    """Which of ``images (n, ...)`` have their bin to themselves, by the thresholds that the server chose."""
    edges = torch.tensor(bins, dtype=torch.float64)
    held = torch.bucketize(images.flatten(1).double() @ direction(64), edges)
    return torch.bincount(held)[held] == 1


def errors(found, truth):
    """Largest pixel error ``(n,)`` of the find nearest to each true image."""
    return (found[:, None] - truth).abs().amax((2, 3, 4)).amin(0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_images_alone_in_their_bin_are_exact(seed):
    run = digits(seed=seed)
    found, uploads = attacked(run)
    for client, part in enumerate(run.task.parts):
        truth = run.task.images[part]
        lone = alone(truth, run.task.network.bins)
        assert lone.double().mean() > 0.7
        assert errors(found[uploads == client], truth)[lone].max() < EXACT


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sum_of_all_clients_gives_up_the_same_images(seed):
    """What a secure sum reveals: who sees it finds images without ever seeing an upload."""
    run = digits(AGGREGATE, clients=8, seed=seed)
    assert all(seen.reports is None for seen in run.view.rounds)
    found, uploads = attacked(run)
    assert uploads.tolist() == [0] * 64
    truth = run.task.images[torch.cat(run.task.parts)]
    lone = alone(truth, run.task.network.bins)
    assert lone.double().mean() > 0.6
    assert errors(found, truth)[lone].max() < EXACT


def test_two_images_in_one_bin_come_out_as_their_blend_and_a_lone_one_as_itself():
    """By hand: rows 0 and 1 lit by x0 (bin 1), row 0 alone by x1 and x2 (bin 0), with slopes 2, 1, 3."""
    images = torch.tensor([[0.9, 0.1], [0.2, 0.3], [0.4, 0.1]], dtype=torch.float64)
    slopes = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)
    lit = torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)
    weights, biases = (lit * slopes) @ images, (lit * slopes).sum(1)
    found = binned_images(
        weights, biases, torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.5, -0.95], dtype=torch.float64), 3
    )
    blend = (images[1] + 3 * images[2]) / 4
    torch.testing.assert_close(found.double(), torch.stack([blend, images[0], blend]), atol=1e-6, rtol=0)


def test_an_upload_that_lights_no_row_is_answered_with_black():
    zeros = torch.zeros(3, 4)
    assert binned_images(zeros, zeros[:, 0], torch.ones(4), torch.zeros(3), 2).tolist() == [[0.0] * 4] * 2


def test_a_model_without_an_imprint_layer_is_refused():
    with pytest.raises(Undefined, match="the attack needs the imprint layer"):
        attacked(digits(model="mlp"))


def test_a_layer_that_training_has_moved_is_refused():
    run = digits(rounds=2)
    with pytest.raises(Undefined, match="training has changed the imprint layer before round 1"):
        Imprint(round=1).run(run.view, run.knowledge, np.random.default_rng(0))
