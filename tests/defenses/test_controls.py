"""Controls: each publishes the law and the claim of its correct twin, and breaks exactly what it says."""

import numpy as np
import pytest
import torch
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS, UPLOADS
from fedassay.defenses.control_no_clip import ControlNoClip, NoClipProtection
from fedassay.defenses.control_noise_halved import ControlNoiseHalved, NoiseHalvedProtection
from fedassay.defenses.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.local import Batch
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson

TWINS = {
    "no clip": (ControlNoClip, DPSGD, UPLOADS),
    "noise halved": (ControlNoiseHalved, DPFedAvg, GLOBAL_MODELS),
}


@pytest.fixture
def plan(toy_task, toy_plan):
    return toy_plan(toy_task((4, 6)), cohort=Poisson(0.5), lot=Poisson(0.5), rounds=20)


@pytest.mark.parametrize("case", TWINS)
def test_a_control_signs_its_twins_claim_and_publishes_its_twins_law(case, plan):
    control, twin, observer = TWINS[case]
    broken, honest = (part(epsilon=4.0, clip_norm=0.7).prepare(plan) for part in (control, twin))
    assert broken.claims == honest.claims
    assert broken.protection.law(observer, plan, 0) == honest.protection.law(observer, plan, 0)
    assert (control.control, twin.control) == (True, False)


def test_half_the_noise_is_added_on_the_same_clipped_sum(plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    sent = Message(values=torch.ones(1, 2, 3), present=torch.ones(1, 2, dtype=torch.bool), senders=(0, 1))
    broken, honest, silent = (
        part(clip_norm=0.5, noise_multiplier=noise).aggregate(sent, context, {}, np.random.default_rng(0))
        for part, noise in ((NoiseHalvedProtection, 3.0), (DPFedAvgProtection, 3.0), (DPFedAvgProtection, 0.0))
    )
    torch.testing.assert_close(broken - silent, (honest - silent) / 2)
    assert silent.tolist() == [[2.0] * 3]


def test_the_halved_noise_is_measured_in_a_run(toy_task, toy_plan, tape, has_std, streams):
    """45,000 numbers on weights that no data moves: half of the published law's, not the law's."""
    task = toy_task((4, 6), inert=100)
    plan = toy_plan(task, cohort=Poisson(0.5))
    broken = NoiseHalvedProtection(clip_norm=0.5, noise_multiplier=3.0)
    run_federation(task, plan, broken, streams, batch=Batch(replicas=150), recorders=[tape])
    noise = torch.stack([event.aggregate[:, -100:] for event in tape.events])
    published = broken.law(AGGREGATE, plan, 0).noise_std
    assert has_std(noise, published / 2)
    assert not has_std(noise, published)


def test_the_client_still_clips_where_only_the_noise_is_halved(plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0,))
    sent = Message(values=torch.full((1, 1, 4), 50.0), present=torch.ones(1, 1, dtype=torch.bool), senders=(0,))
    broken = NoiseHalvedProtection(clip_norm=0.5, noise_multiplier=3.0)
    reported = broken.report(sent, context, {}, np.random.default_rng(0)).values
    assert float(reported.norm()) == pytest.approx(0.5)


def test_without_the_clip_a_long_row_passes_whole_under_the_same_noise(plan):
    """Expected lot 2: a row of length 50 moves the direction by 25, its clipped twin by .5."""
    context = Context(plan=plan, round=0, replicas=1, senders=(0,))
    row, drawn = torch.tensor([[[30.0, 40.0]]]), torch.ones(1, 1, dtype=torch.bool)
    broken, honest = (
        part(clip_norm=1.0, noise_multiplier=3.0).local_step(row, drawn, 0, context, {}, np.random.default_rng(0))
        for part in (NoClipProtection, DPSGDProtection)
    )
    torch.testing.assert_close(broken - honest, torch.tensor([[15.0 - 0.3, 20.0 - 0.4]]))


def test_a_row_shorter_than_the_clip_norm_cannot_tell_the_missing_clip(plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0,))
    row, drawn = torch.tensor([[[0.6, 0.8]]]), torch.ones(1, 1, dtype=torch.bool)
    broken, honest = (
        part(clip_norm=1.0, noise_multiplier=3.0).local_step(row, drawn, 0, context, {}, np.random.default_rng(0))
        for part in (NoClipProtection, DPSGDProtection)
    )
    torch.testing.assert_close(broken, honest)
