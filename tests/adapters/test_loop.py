"""A loop in plain PyTorch, watched by two lines: the correct loop, broken ones, and wrong use."""

import numpy as np
import pytest
import torch
from fedassay.adapters.loop import LoopWatch
from torch import nn

NOISE, CLIP, RATE, RECORDS = 1.0, 1.0, 0.2, 80


def loop(watch, model, *, seed=0, steps=10, noise=NOISE, clip=True, leak=False, optimizer=None, change=None):
    """DP-SGD of a linear model by hand."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((RECORDS, 6))).float()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        lot = np.flatnonzero(rng.random(RECORDS) < RATE)
        errors = (model(x[lot]) - 3).detach()
        rows = torch.cat([(errors[:, :, None] * x[lot][:, None, :]).flatten(1), errors], dim=1)
        watch.lot(lot, rows)
        kept = rows * (CLIP / rows.norm(dim=1, keepdim=True)).clamp(max=1) if clip else rows
        total = kept.sum(0)
        noised = total + noise * CLIP * torch.from_numpy(rng.standard_normal(total.shape)).float()
        watch.release(total, noised)
        for parameter, part in zip(model.parameters(), noised.split([12, 2]), strict=True):
            parameter.grad = part.reshape(parameter.shape) / (RATE * RECORDS)
        if change is not None:
            change(model, total)
        optimizer.step()
        if leak:
            with torch.no_grad():
                model.bias += 0.01 * errors.mean(0)


def made(**changes):
    model = nn.Linear(6, 2)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "records": RECORDS, "rate": RATE, "steps": 10}
    return model, LoopWatch(model, **(stated | changes))


@pytest.mark.parametrize(
    ("broken", "stated", "expected"),
    [
        ({}, {}, set()),
        ({"noise": 0.5}, {}, {"noise scale"}),
        ({"clip": False}, {}, {"sum of clipped rows"}),
        ({}, {"steps": 1}, {"steps accounted"}),
        ({}, {"rate": 0.05}, {"sampling rate"}),
    ],
)
def test_two_lines_in_a_loop_find_what_is_broken(broken, stated, expected):
    model, watch = made(**stated)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch:
        watch.attach(optimizer)
        loop(watch, model, optimizer=optimizer, **broken)
    found = {one.name for one in watch.results().failed}
    assert found == expected


def test_a_parameter_that_moves_between_two_updates_is_reported_and_is_no_accusation():
    model, watch = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch.attach(optimizer)
    loop(watch, model, optimizer=optimizer, leak=True)
    # An average of noised models moves parameters too: one run does not show which of the two it was.
    found = {one.name: one for one in watch.results().results}["state without noise"]
    assert found.passed is None
    assert found.witness.startswith("bias changed between two updates")


def test_running_statistics_of_a_batch_norm_are_found_without_an_optimizer():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    watch = LoopWatch(model, noise_multiplier=1.0, clip_norm=1.0)
    with watch:
        model(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    found = {one.name: one for one in watch.results().failed}
    assert "0.running_mean, 0.running_var changed, and depends on the inputs" in found["state without noise"].witness


def test_a_loop_without_an_account_says_so():
    model, watch = made(rate=None, steps=None)
    loop(watch, model)
    unseen = {one.name: one.witness for one in watch.results().unseen}
    assert unseen["steps accounted"] == "the loop gives no steps to an accountant"
    assert not watch.results().failed


def test_a_lot_may_come_in_parts():
    _, watch = made()
    rows = torch.eye(14)[:4]
    watch.lot([1, 2], rows[:2])
    watch.lot([3, 4], rows[2:])
    watch.release(rows.sum(0), rows.sum(0))
    release = watch.recording().releases[0]
    assert (release.ids, release.rows, release.longest) == ((1, 2, 3, 4), 4, pytest.approx(1.0))


def test_an_exception_in_the_third_step_keeps_what_was_recorded():
    model, watch = made()

    def fail():
        with watch:
            loop(watch, model, steps=3)
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as raised:
        fail()
    assert "raised after 3 recorded releases" in raised.value.__notes__[0]
    assert len(watch.recording().releases) == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda watch: watch.lot([0, 1], torch.zeros(3, 14)), "ids and rows must have equal lengths, got 2 and 3"),
        (lambda watch: watch.lot([99], None), "ids must be indices of the 80 records"),
        (lambda watch: watch.lot([0], torch.zeros(1, 13)), r"rows must have shape \(n, 14\), got \(1, 13\)"),
        (lambda watch: watch.release(None, torch.zeros(13)), r"a sum must have shape \(14,\), got \(13,\)"),
        (lambda watch: made(noise_multiplier=0), "noise_multiplier must be a number > 0, got 0"),
        (lambda watch: made(records=2.5), "records must be"),
        (lambda watch: made(records=0), "records must be"),
        (lambda watch: made(steps=-1), "steps must be"),
        (lambda watch: made(rate=2), r"rate \(of sampling\) must be in \(0, 1\], got 2"),
    ],
)
def test_wrong_use_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong(made()[1])


def attached(change, optimizer=torch.optim.SGD, **broken):
    model, watch = made()
    chosen = optimizer(model.parameters(), lr=0.1)
    watch.attach(chosen)
    loop(watch, model, optimizer=chosen, change=change, **broken)
    return {one.name: one for one in watch.results().results}["state without noise"]


def adds_the_sum(model, total):
    model.weight.grad += total[:12].reshape(2, 6)


def is_the_sum(model, total):
    model.weight.grad = total[:12].reshape(2, 6).clone()


def decays_weights(model, total):
    model.weight.grad += 0.01 * model.weight.detach()


def scales_all(model, total):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def doubles_the_noise(model, total):
    model.weight.grad = 2 * model.weight.grad - total[:12].reshape(2, 6) / (RATE * RECORDS)


def clamps(model, total):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def scales_one_layer(model, total):
    model.bias.grad *= 3


def leaves_one_layer(model, total):
    model.bias.grad = None


class Noising(torch.optim.SGD):
    """Would add the noise in its step."""


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        *((one, False) for one in (adds_the_sum, is_the_sum)),
        *((one, True) for one in (None, decays_weights, scales_all, leaves_one_layer)),
        # Other functions of the noised sum are reported and are no accusation.
        *((one, None) for one in (doubles_the_noise, clamps, scales_one_layer)),
    ],
)
def test_a_gradient_must_be_a_multiple_of_the_noised_sum_and_must_not_hold_the_sum_without_its_noise(change, passed):
    assert attached(change).passed is passed
    assert attached(is_the_sum, Noising).passed is None


def test_gradients_of_a_closure_are_not_compared_before_they_are_computed():
    model, watch = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch.attach(optimizer)
    watch.release(torch.ones(14), torch.zeros(14))
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step(lambda: 0.0)
    assert {one.name: one for one in watch.results().results}["state without noise"].passed


def test_an_optimizer_without_the_model_and_a_second_one_are_refused():
    watch = LoopWatch({"weight": (3,)}, noise_multiplier=1.0, clip_norm=1.0)
    with pytest.raises(TypeError, match="attach needs the module"):
        watch.attach(torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=0.1))
    model, watch = made()
    watch.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="attach was called twice"):
        watch.attach(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    "ids", [torch.tensor([True, False]), np.array([1.5]), [1.5], [True], torch.zeros(1, 2, dtype=int), [[1, 2]]]
)
def test_ids_that_are_no_whole_numbers_are_refused(ids):
    with pytest.raises(ValueError, match=r"ids must be whole numbers.*mask\.nonzero"):
        made()[1].lot(ids, None)


@pytest.mark.parametrize("ids", [[1, 2], (1, np.int32(2)), np.array([1, 2]), torch.tensor([1, 2]), iter([1, 2])])
def test_whole_numbers_of_any_kind_are_ids(ids):
    _, watch = made()
    watch.lot(ids, None)
    watch.lot(np.array([]), None)
    watch.release(None, torch.zeros(14))
    assert watch.recording().releases[0].ids == (1, 2)


def test_a_model_without_parameters_to_train_is_refused():
    with pytest.raises(ValueError, match="model must have a parameter that requires a gradient"):
        LoopWatch(nn.Linear(2, 1).requires_grad_(False), noise_multiplier=1.0, clip_norm=1.0)
    with pytest.raises(TypeError, match="model must be a module, or a mapping of names to shapes"):
        LoopWatch(lambda x: x, noise_multiplier=1.0, clip_norm=1.0)


def test_sums_may_be_arrays_by_name_or_in_order():
    _, watch = made()
    parts = [np.ones((2, 6)), np.zeros(2)]
    watch.release(parts, dict(zip(("weight", "bias"), parts, strict=True)))
    release = watch.recording().releases[0]
    assert release.released.tolist() == release.received.tolist() == [1.0] * 12 + [0.0] * 2


@pytest.mark.parametrize(
    ("noised", "kind", "words"),
    [
        ([0.0] * 14, ValueError, "a list must hold one tensor for each of weight, bias, got 14 entries"),
        ([0.0, 1.0], TypeError, "weight must be a tensor or an array, got float"),
        (0.5, TypeError, "vectors must be a tensor, an array, or tensors by name, got float"),
    ],
)
def test_sums_of_other_kinds_are_refused(noised, kind, words):
    with pytest.raises(kind, match=words):
        made()[1].release(None, noised)


def test_a_clip_of_the_lots_mean_does_not_pass():
    rng = np.random.default_rng(0)
    records = torch.from_numpy(rng.standard_normal((RECORDS, 14)))
    _, watch = made()
    for _ in range(30):
        lot = np.flatnonzero(rng.random(RECORDS) < 0.1)
        watch.lot(lot, records[lot])
        mean = records[lot].sum(0) / max(1, len(lot))
        total = mean / max(1.0, float(mean.norm()))
        watch.release(total, total + torch.from_numpy(rng.standard_normal(14)))
    found = {one.name: one for one in watch.results().results}["sum of clipped rows"]
    assert found.passed is None
    assert "one number for the lot" in found.witness
