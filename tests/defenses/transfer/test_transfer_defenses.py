"""What each defense of a transfer adds and releases, by hand and by the accountants that its claim names."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.accounting.votes import data_dependent_rdp
from fedassay.defenses.controls.transfer import ControlVotesCheckUnpaid, ControlVotesNoiseReused, NoiseReusedVotes
from fedassay.defenses.transfer.confident_gnmax import ConfidentGNMax, ConfidentVotes
from fedassay.defenses.transfer.defense import GaussianMax
from fedassay.defenses.transfer.gaussian_logits import GaussianLogits, NoisyLogits
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.defenses.transfer.gnmax_data_dependent import NUMBER, GNMaxDataDependent
from fedassay.defenses.transfer.grr_votes import GRRVotes
from fedassay.defenses.transfer.lnmax import LNMax
from fedassay.defenses.transfer.plain_votes import PlainVotes
from fedassay.defenses.transfer.unary_votes import UnaryVotes
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.partitions import partition_from
from fedassay.fl.streams import Runs, Streams
from fedassay.fl.task import TrainingRule, build_task
from fedassay.fl.transfer.engine import run_transfer, teacher_logits
from fedassay.fl.transfer.protection import TransferContext
from fedassay.fl.transfer.task import ABSTAINED, transfer_task
from toy_transfer import votes_plan


def released(protection, plan, counts, replicas=1, seed=0):
    """What is released of the given counts ``(queries, classes)``."""
    answers = torch.as_tensor(counts, dtype=torch.float64).expand(replicas, 1, plan.queries, plan.classes)
    context, rng = TransferContext(plan=plan, replicas=replicas), np.random.default_rng(seed)
    return protection.aggregate_votes(answers, context, protection.initial_state(plan), rng)[0]


def test_gnmax_and_lnmax_state_the_scale_of_their_noise_in_votes():
    plan = votes_plan(queries=100)
    sigma = GNMax(epsilon=2.0).prepare(plan).protection.noise.scale
    assert epsilon_from_mu(math.sqrt(2 * 100) / sigma, 1e-5) == pytest.approx(2.0)
    assert LNMax(epsilon=2.0, delta=0.0).prepare(plan).protection.noise.scale == 2 * 100 / 2.0
    # With a delta the sum of epsilons is not what is stated, and the noise is a fraction of it.
    assert LNMax(epsilon=2.0).prepare(plan).protection.noise.scale < 30
    one = LNMax(epsilon=2.0).prepare(votes_plan(queries=1))
    assert one.protection.noise.scale == 1.0
    assert (one.claims[0].curve is None, one.claims[0].accountant) == (True, "basic composition of exact epsilons")


def test_the_budget_of_confident_gnmax_is_split_between_checks_and_labels():
    """Shift over noise, squared, summed over all checks (1) and labels (2) is the budget's mu squared."""
    for labels, most in ((None, 40), (5, 5), (100, 40)):
        plan = votes_plan(queries=40)
        prepared = ConfidentGNMax(epsilon=2.0, labels=labels, check_share=0.3).prepare(plan)
        votes, mu = prepared.protection, prepared.claims[0].curve.mu
        checks, answers = 40 / votes.check_noise**2, 2 * most / votes.label_noise**2
        assert epsilon_from_mu(mu, 1e-5) == pytest.approx(2.0)
        assert checks == pytest.approx(0.3 * mu**2)
        assert checks + answers == pytest.approx(mu**2)


def test_only_queries_that_pass_are_answered_and_no_more_than_were_paid_for():
    plan = votes_plan(teachers=50, queries=6)
    counts = torch.tensor([[50.0, 0, 0], [20, 15, 15], [45, 5, 0], [1, 49, 0], [0, 0, 50], [17, 17, 16]])
    sure = ConfidentVotes(threshold=30.0, check_noise=1e-3, label_noise=1e-3, labels=6)
    assert released(sure, plan, counts).labels.tolist() == [[0, ABSTAINED, 0, 1, 2, ABSTAINED]]
    few = ConfidentVotes(threshold=30.0, check_noise=1e-3, label_noise=1e-3, labels=2)
    assert released(few, plan, counts).labels.tolist() == [[0, ABSTAINED, 0, *[ABSTAINED] * 3]]
    assert few.label_law(plan) is None
    # Half of the checks at the threshold pass, five standard errors of 6000.
    edge = ConfidentVotes(threshold=30.0, check_noise=5.0, label_noise=1.0, labels=6)
    labels = released(edge, plan, torch.tensor([[30.0, 10, 10]]).expand(6, 3), replicas=1000).labels
    assert (labels == ABSTAINED).double().mean() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(6000))


def test_noise_is_fresh_for_each_query_and_run_and_only_the_control_reuses_it():
    counts = torch.zeros(2000, 2, 3)
    rng = np.random.default_rng(0)
    noise = GNMax().prepare(votes_plan(queries=2)).protection.noised(counts, rng)
    between = np.corrcoef(noise.reshape(2000, 6).numpy().T) - np.eye(6)
    assert np.abs(between).max() < 5 / math.sqrt(2000)
    again = NoiseReusedVotes(noise=GaussianMax(3.0)).noised(counts, rng)
    assert torch.equal(again[:, 0], again[:, 1])
    assert len(again.unique(dim=0)) == 2000
    assert isinstance(ControlVotesNoiseReused().prepare(votes_plan()).protection, NoiseReusedVotes)


def test_an_unpaid_check_decides_nearly_without_noise():
    plan = votes_plan(teachers=1000, queries=6)
    broken = ControlVotesCheckUnpaid(epsilon=1.0).prepare(plan).protection
    for votes, share in ((605.0, 0.0), (595.0, 1.0)):
        labels = released(broken, plan, torch.tensor([[votes, 1000 - votes, 0]]).expand(6, 3), replicas=1000).labels
        assert (labels == ABSTAINED).double().mean() == pytest.approx(share, abs=1e-3)


def test_labels_and_published_epsilon_together_keep_the_budget_at_the_order_of_the_number():
    plan = votes_plan(teachers=1000, queries=50, classes=10)
    votes = GNMaxDataDependent(epsilon=2.0).prepare(plan).protection
    order, sigma = votes.bound.order, votes.noise.scale
    total = 50 * order / sigma**2 + votes.release.rdp(order)
    at_order = total + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
    # Another order may convert better, and the budget is used up at the best one.
    assert 2.0 <= at_order < 2.0 * 1.05
    assert votes.release.rdp(order) == pytest.approx(0.1 * 2.0)
    assert sigma > GNMax(epsilon=2.0).prepare(plan).protection.noise.scale


def test_the_published_epsilon_is_not_below_that_of_the_votes_and_never_above_the_claim():
    plan = votes_plan(teachers=1000, queries=50, classes=10)
    votes = GNMaxDataDependent(epsilon=4.0, shortfall=0.05).prepare(plan).protection
    order, sigma = votes.bound.order, votes.noise.scale

    def at(divergence):
        return divergence + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)

    for first in (1000.0, 600.0, 550.0, 500.0):
        counts = torch.zeros(50, 10)
        counts[:, 0], counts[:, 1] = first, 1000 - first
        numbers = released(votes, plan, counts, replicas=400).numbers[NUMBER]
        own = data_dependent_rdp(counts.numpy(), sigma=sigma, order=order) + votes.release.rdp(order)
        assert float(numbers.max()) <= 4.0
        # Shortfall 5 %, five standard errors of 400 runs.
        assert float((numbers < min(4.0, at(own)) - 1e-9).double().mean()) <= 0.05 + 5 * math.sqrt(0.05 / 400)
    # Where all agree the labels cost next to nothing, and what is left is the conversion and the number's own cost.
    agreed = torch.zeros(50, 10)
    agreed[:, 0] = 1000
    assert float(released(votes, plan, agreed).numbers[NUMBER]) < 0.7 * 4.0
    # Among few teachers every vote matters, and nothing is gained.
    few = votes_plan(teachers=20, queries=50, classes=10)
    small = GNMaxDataDependent(epsilon=4.0).prepare(few).protection
    assert float(released(small, few, agreed / 50).numbers[NUMBER]) == 4.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("defense", [GRRVotes, UnaryVotes])
def test_randomised_answers_share_the_budget_exactly(defense, delta):
    """Each answer's exact epsilon, from its law, composed over all queries."""
    plan = votes_plan(queries=100, classes=4)
    randomiser = defense(epsilon=4.0, delta=delta).prepare(plan).protection.randomiser
    each = randomiser.exact_epsilon()
    assert composed_epsilon(each, releases=100, delta=delta) == pytest.approx(4.0, rel=1e-6)
    assert each == pytest.approx(0.04) if delta == 0 else each > 0.06


def test_the_released_label_is_the_one_of_the_largest_estimated_count():
    """Sums of answers order labels as the unbiased estimates do."""
    for defense in (GRRVotes(epsilon=8.0), UnaryVotes(epsilon=8.0), UnaryVotes(epsilon=8.0, encoding="optimised")):
        plan = votes_plan(teachers=30, queries=1, classes=4)
        votes = defense.prepare(plan).protection
        logits = torch.eye(4)[torch.arange(30) % 4].view(1, 30, 1, 4)
        context = TransferContext(plan=plan, replicas=1)
        answers = votes.teacher_answers(logits, context, {}, np.random.default_rng(0))
        reports = answers[0, :, 0].numpy().astype(np.int64)
        own = reports.argmax(-1) if isinstance(defense, GRRVotes) else reports
        estimates = votes.randomiser.estimate(own).sum(0)
        found, _ = votes.aggregate_votes(answers, context, {}, np.random.default_rng(0))
        assert estimates[int(found.labels[0, 0])] == pytest.approx(estimates.max())


def test_logits_of_any_two_teachers_are_at_most_two_clip_norms_apart_per_query():
    plan = votes_plan(queries=9, classes=5)
    votes = GaussianLogits(epsilon=3.0, clip_norm=0.5).prepare(plan).protection
    assert epsilon_from_mu(math.sqrt(9) * 2 * 0.5 / votes.noise_std, 1e-5) == pytest.approx(3.0)
    silent = NoisyLogits(clip_norm=0.5, noise_std=0.0)
    context = TransferContext(plan=plan, replicas=1)
    wild = torch.tensor([1e30, -3.0, math.nan, math.inf, 0.0]).expand(1, 1, 9, 5)
    ordinary = torch.randn(1, 1, 9, 5, generator=torch.Generator().manual_seed(0))
    for logits in (ordinary * 100, wild, ordinary * 1e-3):
        sent = silent.teacher_answers(logits, context, {}, np.random.default_rng(0))
        assert float(torch.linalg.vector_norm(sent, dim=-1).max()) <= 0.5 * (1 + 1e-6)
        shifted = silent.teacher_answers(logits + 7.0, context, {}, np.random.default_rng(0))
        torch.testing.assert_close(sent, shifted, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="encoding must be"):
        UnaryVotes(encoding="thermometer")


def test_on_digits_a_student_learns_from_votes_and_less_from_noisy_ones():
    """Fifty teachers of about 29 samples each, and a hundred queries."""
    task = build_task(
        load_dataset("digits"), model="logistic", partition=partition_from("iid"), clients=50, streams=Streams(0)
    )
    data = transfer_task(task, queries=100, streams=Streams(0))
    rule = TrainingRule(steps=100, learning_rate=0.01, lot=32)
    plan = data.plan(teacher=rule, student=rule)
    logits, right = teacher_logits(data, plan, Streams(0)), {}
    for defense in (PlainVotes(), GNMax(epsilon=4.0)):
        models = run_transfer(
            data, plan, defense.prepare(plan).protection, Streams(0), logits=logits, runs=Runs(replicas=3)
        )
        right[type(defense)] = np.mean([data.task.utility(model)[0].value for model in models])
    assert 0.75 < right[PlainVotes] < 0.95
    assert 0.3 < right[GNMax] < right[PlainVotes] - 0.05
