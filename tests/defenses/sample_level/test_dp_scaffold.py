"""DP-SCAFFOLD: control variates of the noised gradients alone, one accounting for both, checks passed."""

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.sample_level.dp_scaffold import DPScaffold
from fedassay.fl.algorithms import FedAvg, Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.sampling import Poisson
from fedassay.fl.training.local import Batch

ALGORITHM = Scaffold(learning_rate=0.2, local_steps=3)


def test_the_accounting_is_that_of_every_noised_step_once(toy_task, toy_plan):
    """78 of 6000, T = 1000 steps at epsilon 2: sigma 1.10598 by PLD (the reference figure)."""
    plan = toy_plan(
        toy_task((60,)), lot=Poisson(0.013), rounds=200, algorithm=Scaffold(learning_rate=0.1, local_steps=5)
    )
    (claim,) = DPScaffold(epsilon=2.0).prepare(plan).claims
    assert claim.parameters["noise_multiplier"] == pytest.approx(1.10598, abs=5e-4)
    assert (claim.parameters["steps"], claim.unit, claim.observer) == (1000, Unit.SAMPLE, UPLOADS)


def test_the_controls_are_means_of_noised_gradients_so_the_data_show_nowhere_else(toy_task, toy_plan, tape, streams):
    """Over 100 weights that no data moves, the server's control after a round is minus the mean update over the steps'
    stride, and carries the noise of the steps: std of one direction over sqrt(3 steps x 2 clients).
    """
    task = toy_task((4, 6), inert=100)
    plan = toy_plan(task, lot=Poisson(0.5), rounds=2, algorithm=ALGORITHM)
    prepared = DPScaffold(clip_norm=0.5).prepare(plan)
    run_federation(task, plan, prepared.protection, streams, batch=Batch(replicas=40), recorders=[tape])
    first, second = tape.events
    assert not first.shared["control"].any()
    torch.testing.assert_close(second.shared["control"], -first.aggregate / (3 * 0.2))
    noise = prepared.protection.noise_multiplier * 0.5
    stds = [noise / plan.expected_lot(client) / 3**0.5 for client in (0, 1)]
    weighed = (0.4**2 * stds[0] ** 2 + 0.6**2 * stds[1] ** 2) ** 0.5
    assert float(second.shared["control"][:, -100:].std()) == pytest.approx(weighed, rel=0.05)


def test_other_algorithms_are_refused(toy_task, toy_plan):
    with pytest.raises(ValueError, match=r"algorithm must be scaffold for DP-SCAFFOLD, got FedAvg"):
        DPScaffold().prepare(toy_plan(toy_task(), algorithm=FedAvg(learning_rate=0.1, local_steps=3)))
