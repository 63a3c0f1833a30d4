"""A loop in plain PyTorch, watched by two lines: the correct loop, broken ones, and wrong use."""

import numpy as np
import pytest
import torch
from fedassay.adapters.loop import LoopWatch
from torch import nn

NOISE, CLIP, RATE, RECORDS = 1.0, 1.0, 0.2, 80


def loop(watch, model, *, seed=0, steps=10, noise=NOISE, clip=True, leak=False, optimizer=None):
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
        ({}, {"rate": 0.05}, {"sampling rate", "sizes of lots", "records in common", "neighbouring records"}),
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
    assert "0.running_mean changed, and takes other values with other inputs" in found["state without noise"].witness


def test_a_loop_without_an_account_says_so():
    model, watch = made(rate=None, steps=None)
    loop(watch, model)
    unseen = {one.name: one.witness for one in watch.results().unseen}
    assert unseen["steps accounted"] == "the loop keeps no account of its steps"
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
        (lambda watch: watch.lot([0, 1], torch.zeros(3, 14)), "ids and rows must be equally many, got 2 and 3"),
        (lambda watch: watch.lot([99], None), "ids must be indices of the 80 records"),
        (lambda watch: watch.lot([0], torch.zeros(1, 13)), r"rows must have shape \(n, 14\), got \(1, 13\)"),
        (lambda watch: watch.release(None, torch.zeros(13)), r"a sum must have shape \(14,\), got \(13,\)"),
        (lambda watch: made(noise_multiplier=0), "noise_multiplier must be a number > 0, got 0"),
        (lambda watch: made(rate=2), r"rate \(of sampling\) must be in \(0, 1\], got 2"),
    ],
)
def test_wrong_use_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong(made()[1])


def test_an_optimizer_cannot_be_compared_without_the_model():
    watch = LoopWatch({"weight": (3,)}, noise_multiplier=1.0, clip_norm=1.0)
    with pytest.raises(TypeError, match="attach needs the module"):
        watch.attach(torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=0.1))
