"""Uniform layers and BLUR+LUS: every layer at the same mu, jointly the budget; the hook is the law."""

import math

import dp_accounting
import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.defenses.accounting.gaussian import Layer, LayeredGaussian
from fedassay.defenses.layers.blur_lus import BlurLus
from fedassay.defenses.layers.uniform_layers import UniformLayers
from fedassay.fl.algorithms import BoundedUpdate
from fedassay.fl.message import Message
from fedassay.fl.protection import Context

DELTA = 1e-5


@pytest.fixture
def plan(toy_task, toy_plan):
    """Two layers of 27 and 3 numbers, three rounds, an algorithm that any of the two takes."""
    bounded = BoundedUpdate(learning_rate=0.2, local_steps=1, mu=1.0, radius=1.0)
    return toy_plan(toy_task((4, 6)), rounds=3, algorithm=bounded)


@pytest.mark.parametrize("part", [UniformLayers, BlurLus])
def test_each_layer_spends_the_same_and_all_spend_the_budget(part, plan):
    prepared = part(epsilon=3.0, delta=DELTA).prepare(plan)
    protection, (joint, *alone) = prepared.protection, prepared.claims
    layers = [
        Layer(clip_norm=c, noise_std=s) for c, s in zip(protection.clip_norms, protection.noise_stds, strict=True)
    ]
    release = LayeredGaussian(layers=tuple(layers), adjacency=Adjacency.REPLACE_ONE, releases=3)
    assert release.epsilon(DELTA) == pytest.approx(3.0, rel=1e-6)
    assert release.layer_mu(0) == pytest.approx(release.layer_mu(1))
    assert joint.curve.mu == pytest.approx(release.mu)
    assert [claim.part for claim in prepared.claims] == ["joint", "layer output.weight", "layer output.bias"]
    for index, claim in enumerate(alone):
        assert claim.epsilon == pytest.approx(release.layer_epsilon(index, DELTA), rel=1e-5)
        assert claim.parameters["clip_norm"] == protection.clip_norms[index]
    assert dp_accounting.get_epsilon_gaussian(math.sqrt(2) / release.mu, DELTA) == pytest.approx(alone[0].epsilon)
    assert {(c.unit, c.adjacency, c.observer) for c in prepared.claims} == {
        (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS)
    }


@pytest.mark.parametrize("part", [UniformLayers, BlurLus])
def test_the_hook_is_the_law(part, plan, has_std):
    """The same generator gives the same report; absent rows stay zero; the noise is each layer's."""
    protection = part().prepare(plan).protection
    law, context = protection.law(UPLOADS, plan, 0), Context(plan=plan, round=0, replicas=400, senders=(0, 1))
    rows = torch.randn(400, 2, 30, generator=torch.Generator().manual_seed(1))
    present = torch.ones(400, 2, dtype=torch.bool)
    present[:, 1] = False
    sent = Message(values=rows * present.unsqueeze(-1), present=present, senders=(0, 1))
    reports = protection.report(sent, context, {}, np.random.default_rng(0)).values
    drawn = law.sample(law.contribution(sent.values), np.random.default_rng(0))
    assert torch.equal(reports[:, 0], drawn[:, 0])
    assert not reports[:, 1].any()
    noise = (reports - law.contribution(sent.values))[:, 0]
    assert has_std(noise[:, :27], protection.noise_stds[0])
    assert has_std(noise[:, 27:], protection.noise_stds[1])
    assert protection.law(AGGREGATE, plan, 0) is None


def test_dropped_numbers_are_noised_like_the_rest(plan, has_std):
    """Half of the 27 and one of the 3: a report that showed the mask would hold exact zeros."""
    protection = BlurLus(dropped=0.5).prepare(plan).protection
    law = protection.law(UPLOADS, plan, 0)
    row = torch.arange(1.0, 31.0)
    kept = law.contribution(row) != 0
    assert kept.tolist() == [False] * 13 + [True] * 14 + [False] + [True] * 2
    assert float(law.contribution(row).norm()) == pytest.approx(1.0)
    sent = Message(values=row.expand(300, 1, -1), present=torch.ones(300, 1, dtype=torch.bool), senders=(0,))
    context = Context(plan=plan, round=0, replicas=300, senders=(0,))
    reports = protection.report(sent, context, {}, np.random.default_rng(0)).values
    assert has_std(reports[..., :13], protection.noise_stds[0])


def test_a_clip_norm_for_each_layer_scales_its_noise_alone(plan):
    one, two = (UniformLayers(clip_norms=norms).prepare(plan).protection for norms in ([1.0], [1.0, 0.2]))
    assert two.noise_stds == pytest.approx((one.noise_stds[0], 0.2 * one.noise_stds[1]))
    assert two.clip_norms == (1.0, 0.2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: UniformLayers(clip_norms=(1.0, 0.0)), "each of clip_norms must be a number > 0, got 0.0"),
        (lambda: UniformLayers(clip_norms=1.0), "clip_norms must be a list of numbers > 0, got 1.0"),
        (lambda: BlurLus(dropped=1.0), r"dropped must be in \(0, 1\)"),
        (lambda: BlurLus(clip_norm=-1.0), "clip_norm must be a number > 0"),
    ],
)
def test_impossible_fields_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
