"""Analytic inversion: exact to rounding on one sample, and on lots for samples that a unit sees alone."""

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Undefined
from fedassay.attacks.gradient.analytic_linear import AnalyticLinear, lone_images
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.protection import Protection


@pytest.fixture
def observed(toy_task, toy_plan, knowledge_of):
    def run(sizes, model, algorithm=None):
        task = toy_task(sizes, model=model, side=8)
        plan = toy_plan(task, rounds=1, algorithm=algorithm or FedSGD(learning_rate=0.5))
        return task, received(task, plan, seed=1), knowledge_of(task, plan, Protection())

    return run


@pytest.mark.parametrize("algorithm", [FedSGD(learning_rate=0.5), FedAvg(learning_rate=0.1, local_steps=1)], ids=str)
@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_one_sample_is_exact_to_a_hundred_thousandth(model, algorithm, observed):
    """Uploads of gradients and of weight deltas: of both signs the quotient is the image. FedAvg's difference of
    weights has lost digits to the weights: 1e-3.
    """
    task, view, knowledge = observed((1, 1, 1), model, algorithm)
    found = AnalyticLinear().run(view, knowledge, np.random.default_rng(0))
    tolerance = 1e-5 if isinstance(algorithm, FedSGD) else 1e-3
    np.testing.assert_allclose(found.images, task.images.numpy(), atol=tolerance)
    np.testing.assert_array_equal(found.labels, task.labels.numpy())


def test_samples_that_a_unit_sees_alone_come_out_of_a_lot():
    """Four images; units 0 to 5 see one each, 6 and 7 two: the four are found, the mixtures are not. Unit 8 is dead."""
    images = torch.from_numpy(np.random.default_rng(0).random((4, 5)))
    active = torch.zeros(9, 4, dtype=torch.float64)
    for unit, sample in enumerate([0, 0, 1, 1, 2, 3]):
        active[unit, sample] = 0.1 + 0.1 * unit
    active[6], active[7] = torch.tensor([2.0, -1.0, 0, 0]), torch.tensor([0, 0, -3.0, 1.0])
    found = lone_images(active @ images, active.sum(1), 4)
    nearest = (found.unsqueeze(1) - images).abs().amax(2).argmin(1)
    assert nearest.sort().values.tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(found.double(), images[nearest], atol=1e-6, rtol=0)


def test_a_lot_with_fewer_units_than_samples_or_none_alive_is_answered_all_the_same():
    found = lone_images(torch.ones(2, 5), torch.tensor([2.0, 0.0]), 3)
    torch.testing.assert_close(found, torch.full((3, 5), 0.5))
    assert lone_images(torch.zeros(2, 5), torch.zeros(2), 3).tolist() == [[0.0] * 5] * 3


def test_a_lot_gives_each_client_as_many_images_as_it_has(observed):
    task, view, knowledge = observed((2, 3, 2), "mlp")
    found = AnalyticLinear().run(view, knowledge, np.random.default_rng(0))
    assert found.uploads.tolist() == [0, 0, 1, 1, 1, 2, 2]
    errors = np.abs(found.images[:, None] - task.images.numpy()[None]).max((2, 3, 4)).min(0)
    assert (errors < 1e-3).mean() >= 0.5


def test_a_convolution_in_front_is_refused(observed):
    _, view, knowledge = observed((1, 1), "lenet")
    with pytest.raises(Undefined, match=r"first layer must be fully connected with a bias, got conv1.weight"):
        AnalyticLinear().run(view, knowledge, np.random.default_rng(0))
