"""DP-FedSGD: DP-FedAvg's mechanism and figures on gradients, one per client and round."""

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.client_level.dp_fedsgd import DPFedSGD
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.sampling import FixedSize, Poisson


def test_one_round_by_hand_is_the_clipped_gradients_over_the_expected_cohort(toy_task, toy_plan, tape, streams):
    """Noise aside, found by running the very same streams without it."""
    task = toy_task((4, 6))
    plan = toy_plan(task, rounds=1, algorithm=FedSGD(learning_rate=0.5))
    prepared = DPFedSGD(clip_norm=0.3).prepare(plan)
    final = run_federation(task, plan, prepared.protection, streams, recorders=[tape])
    (event,) = tape.events
    rows = [
        task.network.sample_gradients(event.broadcast, task.images[part][None], task.labels[part][None])[0].mean(0)
        for part in task.parts
    ]
    clipped = [-row * min(1.0, 0.3 / float(row.norm())) for row in rows]
    torch.testing.assert_close(event.reports.values[0], torch.stack(clipped), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(final, event.broadcast + 0.5 * event.aggregate)


def test_it_is_calibrated_and_published_as_dp_fedavg_and_states_its_own_source(toy_task, toy_plan):
    plan = toy_plan(toy_task(), cohort=Poisson(0.5), rounds=20)
    ours, theirs = (part(epsilon=2.0, clip_norm=0.3).prepare(plan) for part in (DPFedSGD, DPFedAvg))
    assert ours.protection == theirs.protection
    (claim,) = ours.claims
    assert (claim.unit, claim.observer, claim.curve) == (Unit.CLIENT, GLOBAL_MODELS, theirs.claims[0].curve)
    assert claim.parameters == theirs.claims[0].parameters
    assert "FedSGD" in claim.source


def test_several_local_steps_and_cohorts_of_fixed_size_are_refused(toy_task, toy_plan):
    plan = toy_plan(toy_task(), cohort=Poisson(0.5))
    with pytest.raises(ValueError, match=r"algorithm must be fedsgd, .* got FedAvg\(learning_rate=0.1"):
        DPFedSGD().prepare(toy_plan(toy_task(), algorithm=FedAvg(learning_rate=0.1, local_steps=1)))
    with pytest.raises(ValueError, match="cohort must be Poisson or full"):
        DPFedSGD().prepare(toy_plan(toy_task(), cohort=FixedSize(2)))
    assert DPFedSGD().prepare(plan).claims
