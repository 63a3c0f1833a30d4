"""Look-alikes of defenses: they do what they say, and sign nothing.

No defense: federated learning as it comes, to the last digit; no claim and no law.
"""

import numpy as np
import pytest
import torch
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.without_dp.gradient_pruning import GradientPruning
from fedassay.defenses.without_dp.none import Undefended
from fedassay.defenses.without_dp.plain_noise import PlainNoise
from fedassay.defenses.without_dp.sign import Sign
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import prune
from fedassay.fl.message import Message
from fedassay.fl.sampling import FixedSize
from torch.nn.functional import cross_entropy


@pytest.fixture
def reports(toy_task, toy_plan):
    """(defense, values) -> the reports of clients with these updates."""

    def send(defense, values, present=None, seed=0):
        plan = toy_plan(toy_task((4, 4)))
        protection = defense.prepare(plan).protection
        present = torch.ones(values.shape[:2], dtype=torch.bool) if present is None else present
        message = Message(values=values, present=present, senders=tuple(range(values.shape[1])))
        return protection.report(message, None, {}, np.random.default_rng(seed)).values

    return send


def test_the_smallest_numbers_of_each_row_are_pruned_by_hand():
    rows = torch.tensor([[3.0, -1.0, 0.5, -4.0], [0.1, 0.2, -0.3, 0.0]])
    assert prune(rows, 0.5).tolist() == [[3.0, 0.0, 0.0, -4.0], pytest.approx([0.0, 0.2, -0.3, 0.0])]
    assert prune(rows, 0.1).equal(rows)
    for any_rows in (torch.randn(3, 10), torch.ones(3, 10)):
        assert (prune(any_rows, 0.7) != 0).sum(1).tolist() == [3, 3, 3]


def test_what_is_not_pruned_is_sent_as_it_is(reports):
    updates = torch.randn(2, 3, 50)
    sent = reports(GradientPruning(pruned=0.8), updates)
    assert sent[sent != 0].equal(updates[sent != 0])
    assert (sent != 0).sum(-1).unique().tolist() == [10]


def test_states_are_all_that_is_sent(reports):
    sent = reports(Sign(step=0.5), torch.tensor([[[3.0, -1e-9, 0.0, -4.0], [0.0, 0.0, 1.0, -1.0]]]))
    assert sent.tolist() == [[[0.5, -0.5, 0.0, -0.5], [0.0, 0.0, 0.5, -0.5]]]


def test_plain_noise_has_its_deviation_and_does_not_clip(reports):
    """The standard deviation of 20,000 numbers lies within 3 %: falsely "no" once in ten million seeds."""
    updates = torch.full((4, 5, 1000), 1e6, dtype=torch.float64)
    noise = reports(PlainNoise(noise_std=0.5), updates) - updates
    assert float(noise.std()) == pytest.approx(0.5, rel=0.03)
    assert abs(float(noise.mean())) < 0.02


def test_clipped_noise_publishes_the_law_that_it_has(reports, toy_task, toy_plan):
    """Mean and deviation of 20,000 numbers, within 5 of their own deviations: falsely "no" once in a million seeds."""
    defense, plan = PlainNoise(noise_std=0.5, clip_norm=2.0), toy_plan(toy_task((4, 4)))
    updates = torch.full((4, 5, 1000), 3.0)
    law = defense.prepare(plan).protection.law(UPLOADS, plan, 0)
    noise = (reports(defense, updates) - law.contribution(updates)) / law.noise_std
    assert law.contribution(updates).norm(dim=-1) == pytest.approx(2.0)
    assert abs(float(noise.mean())) < 5 / noise.numel() ** 0.5
    assert float(noise.std()) == pytest.approx(1.0, abs=5 / (2 * noise.numel()) ** 0.5)
    bare = PlainNoise(noise_std=0.5).prepare(plan).protection.law(UPLOADS, plan, 0)
    assert bare.contribution(updates).equal(updates)
    assert defense.prepare(plan).protection.law(AGGREGATE, plan, 0) is None


def test_absent_rows_stay_absent(reports):
    present = torch.tensor([[True, False]])
    for defense in (PlainNoise(), GradientPruning(), Sign()):
        sent = reports(defense, torch.randn(1, 2, 20) * present.unsqueeze(-1), present)
        assert not sent[0, 1].any()
        assert sent[0, 0].any()


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: PlainNoise(noise_std=0), "noise_std must be a number > 0, got 0"),
        (lambda: Sign(step=-1.0), "step must be a number > 0, got -1.0"),
        (lambda: PlainNoise(clip_norm=-1.0), "clip_norm must be a number > 0, got -1.0"),
        (lambda: GradientPruning(pruned=1.0), "pruned must be in \\(0, 1\\), got 1.0"),
        (lambda: GradientPruning(pruned=True), "pruned must be in \\(0, 1\\), got True"),
    ],
)
def test_impossible_fields_are_refused(build, text):
    with pytest.raises(ValueError, match=text):
        build()


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
