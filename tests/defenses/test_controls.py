"""Controls: each publishes the law and the claim of its correct version, and breaks exactly one thing."""

import numpy as np
import pytest
import torch
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.controls.clipping import (
    AdaptiveClipRawProtection,
    BatchClipProtection,
    ClipAfterMeanProtection,
    NoClipProtection,
)
from fedassay.defenses.controls.noise import (
    ControlNoiseOneRound,
    ControlReplaceOne,
    NoiseHalvedProtection,
    NoiseOneLayerProtection,
    NoiseReusedProtection,
    SeedSharedProtection,
    VarianceForDeviationProtection,
)
from fedassay.defenses.controls.sampling import ActualLotProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson


@pytest.fixture
def plan(toy_task, toy_plan):
    return toy_plan(toy_task((4, 6)), cohort=Poisson(0.5), lot=Poisson(0.5), rounds=20)


def test_half_the_noise_is_added_on_the_same_clipped_sum(plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    sent = Message(values=torch.ones(1, 2, 3), present=torch.ones(1, 2, dtype=torch.bool), senders=(0, 1))
    broken, correct, silent = (
        part(clip_norm=0.5, noise_multiplier=noise).aggregate(sent, context, {}, np.random.default_rng(0))
        for part, noise in ((NoiseHalvedProtection, 3.0), (DPFedAvgProtection, 3.0), (DPFedAvgProtection, 0.0))
    )
    torch.testing.assert_close(broken - silent, (correct - silent) / 2)
    assert silent.tolist() == [[2.0] * 3]


@pytest.mark.parametrize(
    ("row", "difference"),
    [([30.0, 40.0], [15.0 - 0.3, 20.0 - 0.4]), ([0.6, 0.8], [0.0, 0.0])],
    ids=["a row of length 50 moves the direction by 25, the clipped row by .5", "shorter than the clip norm"],
)
def test_without_the_clip_a_row_passes_whole_under_the_same_noise(plan, row, difference):
    """Expected lot 2. A row shorter than the clip norm cannot show the missing clip."""
    context = Context(plan=plan, round=0, replicas=1, senders=(0,))
    rows, drawn = torch.tensor([[row]]), torch.ones(1, 1, dtype=torch.bool)
    broken, correct = (
        part(clip_norm=1.0, noise_multiplier=3.0).local_step(rows, drawn, 0, context, {}, np.random.default_rng(0))
        for part in (NoClipProtection, DPSGDProtection)
    )
    torch.testing.assert_close(broken - correct, torch.tensor([difference]))


def step(protection, plan, rows, seed=0):
    """``rows (n, d)`` of client 0's lot, all drawn -> the direction."""
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    lot, drawn = torch.tensor([rows]), torch.ones(1, len(rows), dtype=torch.bool)
    return protection.local_step(lot, drawn, 0, context, {}, np.random.default_rng(seed))[0]


def message(rows):
    values = torch.tensor([rows], dtype=torch.float32)
    return Message(values=values, present=torch.ones(values.shape[:2], dtype=torch.bool), senders=(0, 1))


def test_the_clip_after_the_mean_bounds_the_mean_and_no_sample(plan):
    """Expected lot 2: the mean is (15, 1), clipped to length 1; clipped one by one it would be (.5, .5)."""
    broken = ClipAfterMeanProtection(clip_norm=1.0, noise_multiplier=0.0)
    length = 226**0.5
    torch.testing.assert_close(step(broken, plan, [[30.0, 0.0], [0.0, 2.0]]), torch.tensor([15 / length, 1 / length]))
    correct = DPSGDProtection(clip_norm=1.0, noise_multiplier=0.0)
    torch.testing.assert_close(step(correct, plan, [[30.0, 0.0], [0.0, 2.0]]), torch.tensor([0.5, 0.5]))


def test_the_batch_clip_lets_a_long_sample_in_with_nearly_n_clip_norms(plan):
    """Norms 98, 1 and 1: mean 100/3, factor .03; the long one enters with 2.94 clip norms over an expected lot of 2."""
    broken = BatchClipProtection(clip_norm=1.0, noise_multiplier=0.0)
    moved = step(broken, plan, [[98.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    torch.testing.assert_close(moved, torch.tensor([2.94 / 2, 0.0]))


def test_the_batch_clip_does_not_see_samples_that_were_not_drawn(plan):
    broken = BatchClipProtection(clip_norm=1.0, noise_multiplier=0.0)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    lot, drawn = torch.tensor([[[4.0], [1e6]]]), torch.tensor([[True, False]])
    assert broken.local_step(lot, drawn, 0, context, {}, np.random.default_rng(0)).tolist() == [[0.5]]


def test_the_variance_is_the_square_of_the_deviation_of_the_means_noise(plan):
    """Multiplier 1, clip norm .5, expected lot 2: the deviation is .25, its square .0625."""
    broken, correct = (
        step(part(clip_norm=0.5, noise_multiplier=1.0), plan, [[0.0] * 8])
        for part in (VarianceForDeviationProtection, DPSGDProtection)
    )
    torch.testing.assert_close(broken, correct * 0.25)


def test_the_actual_lot_divides_sum_and_noise(plan):
    """Of four samples two are expected, three came."""
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    broken, correct = (
        step(part(clip_norm=1.0, noise_multiplier=1.0), plan, rows) for part in (ActualLotProtection, DPSGDProtection)
    )
    torch.testing.assert_close(broken, correct * 2 / 3)


@pytest.mark.parametrize(("control", "share"), [(ControlReplaceOne, 1 / 2), (ControlNoiseOneRound, 20**-0.5)])
def test_the_local_noise_of_a_control_is_a_share_of_its_correct_version(control, share, plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    broken, correct = (
        part().prepare(plan).protection.report(message([[0.0] * 5] * 2), context, {}, np.random.default_rng(0)).values
        for part in (control, LDPGaussian)
    )
    torch.testing.assert_close(broken, correct * share)


def test_with_one_seed_two_reports_differ_by_no_noise(plan):
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    broken = SeedSharedProtection(clip_norm=1.0, noise_std=7.0)
    sent = broken.report(message([[1.0, 0.0], [0.0, 1.0]]), context, {}, np.random.default_rng(0)).values[0]
    torch.testing.assert_close(sent[0] - sent[1], torch.tensor([1.0, -1.0]), rtol=0, atol=1e-5)
    assert float(sent.abs().max()) > 1


def test_the_noise_of_the_first_round_serves_for_all_and_not_for_another_run(plan):
    broken = NoiseReusedProtection(clip_norm=1.0, noise_multiplier=1.0)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))

    def run(seed):
        state = broken.initial_state(plan)
        rngs = [np.random.default_rng((seed, number)) for number in range(2)]
        return [broken.aggregate(message([[0.0] * 4] * 2), context, state, rng) for rng in rngs]

    (one, again), (other, _) = run(0), run(1)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    correct = DPFedAvgProtection(clip_norm=1.0, noise_multiplier=1.0)
    first = correct.aggregate(message([[0.0] * 4] * 2), context, {}, np.random.default_rng((0, 0)))
    torch.testing.assert_close(one, first)


def test_the_last_layer_has_no_noise_and_all_others_have_their_correct_versions(plan):
    dim, bare = plan.layout.dim, plan.layout.slices[plan.layout.names[-1]]
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    broken, correct = (
        part(clip_norm=1.0, noise_multiplier=1.0).aggregate(
            message([[0.25] * dim] * 2), context, {}, np.random.default_rng(0)
        )[0]
        for part in (NoiseOneLayerProtection, DPFedAvgProtection)
    )
    assert broken[bare].tolist() == [0.5] * 3
    assert torch.equal(broken[: bare.start], correct[: bare.start])


def test_the_raw_adaptive_clip_is_the_median_of_the_last_rounds_norms(plan):
    """Norms 3, 4 and 50, the last of an absent client: the lower median of those present, 3, clips the next round."""
    broken = AdaptiveClipRawProtection(clip_norm=1.0, noise_multiplier=0.0)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2))
    values = torch.tensor([[[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]])
    sent = Message(values=values, present=torch.tensor([[True, True, False]]), senders=(0, 1, 2))
    state = broken.initial_state(plan)
    rng = np.random.default_rng(0)
    reports = broken.report(sent, context, state, rng)
    assert reports.values.tolist() == [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]
    state = broken.close_round(broken.aggregate(reports, context, state, rng), context, state)
    assert state["clip_norm"].tolist() == [[3.0]]
    assert broken.report(sent, context, state, rng).values.tolist() == [[[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]]]
