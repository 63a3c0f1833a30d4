"""No defense: federated learning as it comes, to the last digit; no claim and no law."""

import pytest
import torch
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.sampling import FixedSize
from torch.nn.functional import cross_entropy


def test_three_rounds_are_gradient_descent_on_everybodys_samples(toy_task, toy_plan, streams):
    """Clients of 4, 6 and 5 samples, weighted by size: the mean over all 15, here by PyTorch's own autograd."""
    task = toy_task((4, 6, 5))
    plan = toy_plan(task, algorithm=FedSGD(learning_rate=0.5))
    final = run_federation(task, plan, Undefended().prepare(plan).protection, streams)[0]
    weights = task.network.initial(streams.generator("init")).requires_grad_(True)
    for _ in range(3):
        loss = cross_entropy(task.network.logits(weights, task.images), task.labels)
        (slope,) = torch.autograd.grad(loss, weights)
        weights = (weights - 0.5 * slope).detach().requires_grad_(True)
    torch.testing.assert_close(final, weights.detach(), rtol=1e-5, atol=1e-6)


def test_it_claims_nothing_whatever_the_sampling(toy_task, toy_plan):
    assert Undefended().prepare(toy_plan(toy_task(), cohort=FixedSize(2), lot=FixedSize(2))).claims == ()


@pytest.mark.parametrize("observer", [UPLOADS, SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL], ids=str)
def test_it_publishes_no_law(observer, toy_task, toy_plan):
    plan = toy_plan(toy_task())
    assert Undefended().prepare(plan).protection.law(observer, plan, 0) is None
