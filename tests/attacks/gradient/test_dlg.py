"""DLG: its batched L-BFGS agrees with PyTorch's, and on a smooth model it finds the image or reports its distance."""

from functools import cached_property

import numpy as np
import pytest
import torch
from fedassay.attacks.gradient.dlg import DLG
from fedassay.attacks.gradient.search import minimise
from fedassay.audit.observer import UPLOADS
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.recorder import RoundView, View
from fedassay.fl.streams import uniform
from torch import nn


class SmoothLeNet(Network):
    """The paper's activation."""

    @cached_property
    def module(self) -> nn.Module:
        return build_model(self.model, shape=self.shape, classes=self.classes, activation="sigmoid")


def bowls(points):
    """A smooth valley (Rosenbrock, sixth power added), another one for each problem."""
    scale = torch.arange(1, len(points) + 1, dtype=points.dtype)
    x, y = points[:, 0], points[:, 1]
    return scale * ((1 - x).square() + 5 * (y - x.square()).square()) + 0.01 * (x - y) ** 6


def torch_steps(objective, start):
    """Values at the points that PyTorch's optimiser evaluates."""
    point, seen = start.clone().requires_grad_(True), list[float]()
    optimiser = torch.optim.LBFGS([point], lr=0.5, max_iter=10, max_eval=100, history_size=20, tolerance_change=0)

    def closure():
        optimiser.zero_grad()
        value = objective(point)
        value.backward()
        seen.append(float(value.detach()))
        return value

    optimiser.step(closure)
    return seen


def test_the_batch_takes_the_steps_of_torchs_own_optimiser():
    """Six problems, ten evaluations each, against torch.optim.LBFGS one at a time."""
    start = 0.5 * torch.from_numpy(np.random.default_rng(0).standard_normal((6, 2)))
    ours = torch.stack([minimise(bowls, start, iterations=n, learning_rate=0.5).values for n in range(10)], dim=1)
    for problem in range(6):
        values = torch_steps(lambda point, problem=problem: bowls(point.expand(6, 2))[problem], start[problem])
        np.testing.assert_allclose(ours[problem].numpy(), np.minimum.accumulate(values[:10]), rtol=1e-8)


def test_a_problem_that_runs_off_keeps_its_best_point_and_hurts_no_other():
    def values(points):
        return torch.stack([points[0].square().sum(), (points[1] - 1).log().sum()])

    found = minimise(values, torch.full((2, 3), 2.0), iterations=30)
    assert found.values[0] < 1e-8
    assert found.points.isfinite().all()
    assert found.values.isfinite().all()


@pytest.mark.simulations
def test_some_starts_on_a_smooth_model_end_at_the_image_itself(toy_task, toy_plan, knowledge_of):
    """Eight images, weights from U(-.5, .5) as in the paper. Its own objective shows which runs converged."""
    network, rng = SmoothLeNet(model="lenet", shape=(1, 8, 8), classes=3), np.random.default_rng(0)
    weights = uniform(rng, (network.layout.dim,)) - 0.5
    images, labels = uniform(rng, (8, 1, 8, 8)), torch.arange(8) % 3
    task = toy_task((1,) * 8, model="logistic", side=8)
    plan = toy_plan(task, rounds=1, layout=network.layout)
    rows = -network.sample_gradients(weights[None], images[None], labels[None])
    reports = Message(values=rows, present=torch.ones(1, 8, dtype=torch.bool), senders=tuple(range(8)))
    shown = RoundView(round=0, broadcast=weights[None], reports=reports)
    view = View(observer=UPLOADS, plan=plan, rounds=(shown,), final_model=weights[None])
    knowledge = knowledge_of(task, plan, None, network=network)
    found = DLG(iterations=250, restarts=2).run(view, knowledge, np.random.default_rng(0))
    errors = ((found.images - images.numpy()) ** 2).mean((1, 2, 3))
    assert (errors < 1e-3).sum() >= 2
    assert (found.labels[errors < 1e-3] == labels.numpy()[errors < 1e-3]).all()
