"""Replay: two runs differ by what was changed on purpose and by nothing else, in every round."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.controls.clipping import AdaptiveClipRawProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary
from fedassay.fl.channels import of_replica
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.replay import (
    HOOK_STREAMS,
    DrawAll,
    DrawHalf,
    FixedGradients,
    FixedTrainer,
    FrozenModel,
    ManyRuns,
    ReplayedStreams,
    frozen_federation,
    replay_many,
)
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.executors.sequential import Sequential
from fedassay.fl.training.local import Batch
from tape import Tape

CLIP, DIM = 0.5, 52  # 51 weights and the unused one.
SGD = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.7)


@pytest.fixture
def still_of(make_task, make_plan):
    """(changes of the plan) -> the still federation of clients with 3 and 5 samples."""

    def build(*, rounds=3, steepness=1.0, **changes):
        task = make_task((3, 5))
        return frozen_federation(task, make_plan(task, **changes), rounds=rounds, steepness=steepness)

    return build


def canary(unit=Unit.SAMPLE, *, client=0, opposite=False):
    row = torch.zeros(DIM)
    row[-1] = 10 * CLIP
    return Canary(unit=unit, present=row, absent=-row if opposite else None, client=client)


def replay(*given, **options):
    (recording,) = replay_many(*given, **options)
    return recording


def first(streams, purpose, **numbers):
    return streams.generator(purpose, **numbers).random()


def test_replayed_streams_are_the_same_in_both_arms():
    streams = ReplayedStreams(3)
    for purpose in ("lot", "cohort", "report", "local noise"):
        assert first(streams, purpose, arm=1, round=2, client=1) == first(streams, purpose, arm=0, round=2, client=1)
        assert first(streams, purpose, round=2) == first(Streams(3), purpose, round=2)
    assert first(Streams(3), "lot", arm=1) != first(Streams(3), "lot", arm=0)


def test_other_noise_changes_the_hooks_draws_and_no_other():
    one, other = ReplayedStreams(3), ReplayedStreams(3, noise=1)
    for purpose in HOOK_STREAMS:
        assert first(one, purpose, round=1) != first(other, purpose, round=1)
    for purpose in ("cohort", "lot", "init", "participation"):
        assert first(one, purpose, round=1) == first(other, purpose, round=1)


def test_the_streams_that_other_noise_changes_are_those_that_hooks_draw_from(make_task, make_plan, monkeypatch):
    """Every stream that the engine opens is either a hook's or decides who takes part and where the model starts."""
    opened = set()

    class Watched(Streams):
        def generator(self, purpose, **numbers):
            opened.add(purpose)
            return super().generator(purpose, **numbers)

    task = make_task((3, 5))
    run_federation(task, make_plan(task, lot=Poisson(0.5)), SGD, Watched(0))
    # No protection here queries a lot.
    assert opened | {"local query"} == HOOK_STREAMS | {"init", "cohort", "lot", "participation"}


@pytest.mark.parametrize("rule", [Poisson(0.2), FixedSize(2), Full(), Epoch(3)], ids=str)
def test_draw_all_draws_all_and_publishes_the_rules_rate(rule):
    everybody = DrawAll(rule)
    assert bool(everybody.draw(np.random.default_rng(0), 4, 7).all())
    assert everybody.rate(7) == rule.rate(7)
    assert (everybody.participations(7), everybody.most(7)) == (rule.participations(7), rule.most(7))


def test_gradients_are_those_at_one_point_wherever_the_model_is(make_task):
    network = make_task((3, 5), inert=1).network
    images, labels = torch.rand(2, 4, 1, 4, 4), torch.zeros(2, 4, dtype=torch.int64)
    point, elsewhere = torch.rand(1, DIM), torch.rand(2, DIM)
    fixed = FixedGradients(
        model=network.model, shape=network.shape, classes=network.classes, inert=1, point=point[0], steepness=3.0
    )
    expected = 3 * network.sample_gradients(point.expand(2, -1), images, labels)
    torch.testing.assert_close(fixed.sample_gradients(elsewhere, images, labels), expected)
    for _ in range(2):
        alone = fixed.sample_gradients(elsewhere[:1], images[:1], labels[:1])
        torch.testing.assert_close(alone, expected[:1])
        alone.zero_()  # A hook may, and what is kept for later runs stays.
    weights = torch.rand(2, 4)
    summed = (expected * weights.unsqueeze(-1)).sum(1)
    torch.testing.assert_close(fixed.gradient(elsewhere, images, labels, weights), summed)


@pytest.mark.parametrize(
    ("algorithm", "scale"),
    [
        (FedSGD(learning_rate=0.5), -1.0),
        (FedAvg(learning_rate=0.2, local_steps=3), -0.2),
        (FedAvg(learning_rate=0.2, local_steps=2, optimizer="adam"), -1.0),
    ],
    ids=["fedsgd", "fedavg", "adam"],
)
def test_an_update_is_the_scaled_sum_of_equal_steps_in_every_round(still_of, algorithm, scale):
    still = still_of(algorithm=algorithm)
    assert still.plan.algorithm == FrozenModel(scale=scale, local_steps=algorithm.local_steps)
    recording = replay(still, Protection(), UPLOADS)
    part = still.task.parts[1]
    rows = still.task.network.sample_gradients(
        torch.zeros(1, DIM), still.task.images[part][None], still.task.labels[part][None]
    )
    expected = scale * algorithm.local_steps * rows[0].mean(0).double()
    for release in recording.releases:
        torch.testing.assert_close(release[1], expected)


@pytest.mark.parametrize("planted", [None, canary(client=1), canary(Unit.CLIENT)], ids=["none", "sample", "client"])
@pytest.mark.parametrize("protection", [Protection(), LDPGaussianProtection(clip_norm=CLIP, noise_std=1.0), SGD])
def test_updates_that_are_computed_once_are_those_of_every_round_and_run(still_of, protection, planted):
    """In runs that share updates: of one or two replicas, with other labels, with other lots in each round."""
    still = still_of(algorithm=FedAvg(learning_rate=0.2, local_steps=2))
    other_labels = (still.task.labels + 1) % still.task.network.classes
    relabelled = replace(still, task=replace(still.task, labels=other_labels))
    by_halves = replace(still, plan=replace(still.plan, lot=DrawHalf(still.plan.lot)))
    for federation, replicas in ((still, 2), (still, 1), (relabelled, 1), (by_halves, 1), (still, 1)):
        tapes = []
        for executor in (Sequential, FixedTrainer):
            tapes.append(Tape())
            batch = Batch(replicas=replicas, arm=int(planted is not None))
            options = {"batch": batch, "canary": planted, "recorders": tapes[-1:], "executor": executor}
            run_federation(federation.task, federation.plan, protection, Streams(0), **options)
        naive, once = tapes
        assert naive.masks() == once.masks()
        for one, other in zip(naive.events, once.events, strict=True):
            assert torch.equal(one.reports.values, other.reports.values)
            assert torch.equal(one.aggregate, other.aggregate)


def test_a_still_federation_has_no_more_rounds_than_its_plan_and_one_unused_weight(still_of):
    for rounds, run in ((2, 2), (9, 3)):
        assert (still_of(rounds=rounds).rounds, still_of(rounds=rounds).plan.rounds) == (run, 3)
    still = still_of()
    assert still.task.network.layout == still.plan.layout
    assert (still.plan.layout.inert, still.plan.sizes) == (1, (3, 5))


def test_one_seed_gives_one_recording_and_another_another(still_of):
    still = still_of(lot=Poisson(0.4))
    one, again, other = (replay(still, SGD, UPLOADS, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.releases, again.releases, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.releases, other.releases, strict=True))


@pytest.mark.parametrize("local_steps", [1, 3])
def test_with_and_without_a_canary_the_noise_cancels_and_its_clipped_contribution_is_left(still_of, local_steps):
    algorithm = FedAvg(learning_rate=0.2, local_steps=local_steps)
    still = still_of(algorithm=algorithm, lot=Poisson(0.4))
    before, after = (replay(still, SGD, UPLOADS, canary=canary(client=1), arm=arm) for arm in (0, 1))
    for without, with_it in zip(before.releases, after.releases, strict=True):
        # Of five samples two are expected in a lot; the canary comes in every step.
        moved = torch.zeros(2, DIM, dtype=torch.float64)
        moved[1, -1] = -0.2 * local_steps * CLIP / 2
        torch.testing.assert_close(with_it - without, moved, rtol=0, atol=1e-6)


def test_a_client_more_shifts_no_others_noise(still_of):
    silent = LDPGaussianProtection(clip_norm=CLIP, noise_std=1.0)
    still = still_of()
    before = replay(still, silent, UPLOADS)
    after = replay(still, silent, UPLOADS, canary=canary(Unit.CLIENT), arm=1)
    assert (before.senders, after.senders) == ((0, 1), (0, 1, 2))
    assert all(torch.equal(a, b[:2]) for a, b in zip(before.releases, after.releases, strict=True))


def test_other_noise_moves_the_noise_alone(still_of):
    """52 numbers in 3 rounds: the difference of two draws has the root of two times the law's deviation."""
    still = still_of(algorithm=FedAvg(learning_rate=0.2, local_steps=3))
    one, other = (replay(still, SGD, UPLOADS, noise=number) for number in (0, 1))
    difference = torch.stack(one.releases) - torch.stack(other.releases)
    for row, sender in enumerate((0, 1)):
        std = SGD.law(UPLOADS, still.plan, sender).noise_std
        # 156 numbers, five standard errors.
        assert float(difference[:, row].std()) == pytest.approx(2**0.5 * std, rel=5 / (2 * 156) ** 0.5)


def test_observers_of_reports_get_rows_and_others_the_sum(still_of):
    fedavg = DPFedAvgProtection(clip_norm=CLIP, noise_multiplier=0.7)
    still = still_of()
    for observer, rows, senders in ((UPLOADS, 2, (0, 1)), (SHUFFLED, 2, (0, 1)), (AGGREGATE, 1, None)):
        recording = replay(still, fedavg, observer)
        assert recording.senders == senders
        assert [tuple(release.shape) for release in recording.releases] == [(rows, DIM)] * 3
        assert bool(torch.stack(recording.present).all())
    models, sums = (replay(still, fedavg, observer) for observer in (GLOBAL_MODELS, AGGREGATE))
    assert all(torch.equal(a, b) for a, b in zip(models.releases, sums.releases, strict=True))


def test_the_public_state_of_every_round_is_kept_as_numbers(still_of):
    adaptive = AdaptiveClipRawProtection(clip_norm=CLIP, noise_multiplier=0.7)
    states = replay(still_of(), adaptive, GLOBAL_MODELS).states
    assert [set(state) for state in states] == [{"clip_norm", "medians[0]"}] * 3
    assert states[0]["clip_norm"] == CLIP
    assert states[1]["clip_norm"].tolist() == states[0]["medians[0]"].tolist() != [[CLIP]]


def test_replicas_of_one_number_share_their_noise_with_and_without_the_canary_and_others_do_not(still_of):
    still, planted = still_of(), canary()
    arms = [replay_many(still, SGD, UPLOADS, noise=3, canary=planted, arm=arm, replicas=4) for arm in (0, 1)]
    for without, present in zip(*arms, strict=True):
        moved = present.releases[0][0] - without.releases[0][0]
        assert int((moved.abs() > 1e-5).sum()) == 1
    values = [run.channels[1]["report values of client 1"] for run in arms[0]]
    assert all(not np.array_equal(values[0], other) for other in values[1:])
    many = ManyRuns(observer=UPLOADS, replicas=4)
    still.run(SGD, ReplayedStreams(0, 3), [many], canary=planted, arm=1, rounds=2, replicas=4)
    for number, run in enumerate(arms[1]):
        assert torch.equal(many.releases[1][number], run.releases[1])


def test_of_a_public_state_a_replica_has_its_row_and_nothing_that_all_replicas_share():
    state = {"clip": np.arange(3.0), "clip: type": "float64 (3,)", "sizes": np.arange(5.0)}
    assert of_replica(state, 1, 1) is state
    assert of_replica(state, 2, 3).keys() == {"clip"}
    assert of_replica(state, 2, 3)["clip"].tolist() == [2.0]
