"""A loop as a system: run on neighbouring data and with a planted unit; right loops, broken ones, and wrong use."""

import time

import numpy as np
import pytest
import torch
from fedassay import claim_from_noise
from fedassay.adapters.loop_system import Loop
from fedassay.adapters.opacus import Training
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.runner import watch
from fedassay.adapters.target import is_runner
from fedassay.checks.training_record import Plant
from fedassay.cli.system_run import judge_watched
from torch import nn
from torch.utils.data import TensorDataset

RECORDS, DIM, RATE, STEPS, SIZE = 100, 12, 0.2, 12, 20
STATED = {"noise_multiplier": 1.0, "clip_norm": 1.0, "rate": RATE, "steps": STEPS, "delta": 1e-5}
SCHEDULE = [2 * 0.9**step for step in range(STEPS)]


def clipped(rows):
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1)


def records(count=RECORDS):
    draws = torch.Generator().manual_seed(5)
    x, noise = torch.randn(count, DIM, generator=draws), torch.randn(count, 1, generator=draws)
    return TensorDataset(x, x.sum(1, keepdim=True) + noise)


def loop(
    *,
    count=RECORDS,
    optimizer=lambda tensors: torch.optim.SGD(tensors, lr=0.1),
    attached=True,
    rows_of=clipped,
    features=lambda x: x,
    noise=1.0,
    divisor=lambda records, lot: SIZE,
    rate_of=lambda loss, step: 1.0,
    added=0.0,
    stop=lambda loss, step: False,
    parts=RECORDS,
    shown=lambda rows: rows,
    seeds=None,
    hand_over=lambda watch, total, noised: watch.release(total, noised),
    own=None,
    order=lambda x: x,
    first=None,
    returns=lambda model, loss: None,
    **stated,
):
    """DP-SGD of a linear model by hand, of which each test changes a part."""

    def train(data, watch):
        if seeds is not None:
            torch.manual_seed(seeds)
        x, y = map(order, data.tensors)
        x, model = features(x), nn.Linear(DIM, 1, bias=False)
        best = []
        watch = watch(model, **({} if own is None else own(data)))
        moves = None if optimizer is None else optimizer(model.parameters())
        if attached and moves is not None:
            watch.attach(moves)
        for step in range(STEPS):
            lot = torch.nonzero(torch.rand(len(data)) < RATE).flatten()
            total, losses, rows = torch.zeros(DIM), [torch.zeros(1, 1)], torch.zeros(0, DIM)
            for part in lot.split(parts) if len(lot) else [lot]:
                errors = (model(x[part]) - y[part]).detach()
                rows = 2 * errors * x[part]
                # Where the rows are clipped before they are handed over, no unit can be written before the clip.
                watch.lot(part, shown(rows if first is None else (rows := first(rows))))
                total, losses = total + rows_of(rows).sum(0), [*losses, errors.square()]
            loss = float(torch.cat(losses).mean())
            noised = total + np.broadcast_to(noise, STEPS)[step].item() * torch.randn(DIM)
            handed = hand_over(watch, total, noised)
            noised = noised if handed is None else handed
            gradient = noised / divisor(len(data), lot) + added * rows.sum(0)
            if moves is None:
                with torch.no_grad():
                    model.weight -= 0.1 * rate_of(loss, step) * gradient
            else:
                for group in moves.param_groups:
                    group["lr"] = 0.1 * rate_of(loss, step)
                model.weight.grad = gradient[None]
                moves.step()
            best.append(returns(model, loss))
            if stop(loss, step):
                break
        return min((one for one in best if one is not None), key=lambda one: one[0], default=None)

    return Loop(train, records(count), **(STATED | stated))


def adam(tensors):
    return torch.optim.Adam(tensors, lr=0.01)


def heavy(tensors):
    return torch.optim.SGD(tensors, lr=0.1, momentum=0.9, weight_decay=0.01)


def returned(watch, total, noised):
    return watch.release(total, noised.clone())


def copies(watch, total, noised):
    watch.release(total, noised.clone())


def as_numpy(watch, total, noised):
    watch.release(total.numpy(), noised.numpy())


def by_name(watch, total, noised):
    watch.release({"weight": total[None]}, {"weight": noised[None]})


def refuses_long_rows(rows):
    if len(rows) and rows.norm(dim=1).max() > 1000:
        raise ValueError("a row is too long")
    return clipped(rows)


RIGHT = [
    {},
    {"rows_of": refuses_long_rows},
    {"optimizer": heavy},
    {"optimizer": adam},
    {"optimizer": None},
    {"optimizer": adam, "attached": False},
    {"rate_of": lambda loss, step: 0.9**step},
    {"parts": 7},
    {"divisor": lambda records, lot: int(records * RATE)},
    {"adjacency": "add_remove"},
    {"hand_over": returned},
    {"hand_over": as_numpy},
    {"hand_over": by_name},
    {"stop": lambda loss, step: step == 7},
    {"noise": 1.5, "epsilon": 20.0},
    {"noise": SCHEDULE, "noise_multiplier": np.array(SCHEDULE)},
]


@pytest.mark.parametrize("changes", RIGHT)
def test_no_right_loop_is_accused_or_left_open(changes):
    system = loop(**changes)
    for seed in range(2):
        found = watch(system, seed=seed)
        assert judge_watched(found).exit_code == 0, found.lines()
        assert {one.name for one in found.results if one.passed} >= {"sums on neighbouring data", "number of records"}


def by_loss(loss, step):
    return 1 / (1 + loss)


def mostly_clipped(rows):
    return torch.cat([clipped(rows[:-1]), rows[-1:]])


def by_count(records, lot):
    return int(records * RATE)


def of_the_mean(rows):
    """The sum of one row: the lot's mean, clipped."""
    return clipped(rows.sum(0)[None] / max(1, len(rows)))


BROKEN = [
    ({"rows_of": of_the_mean}, "sums on neighbouring data"),
    ({"rate_of": by_loss}, "state without noise"),
    ({"rate_of": by_loss, "optimizer": None}, "state without noise"),
    ({"rate_of": by_loss, "optimizer": adam, "attached": False}, "state without noise"),
    ({"added": 0.01}, "state without noise"),
    ({"added": 0.01, "optimizer": adam, "attached": False}, "state without noise"),
    ({"stop": lambda loss, step: step > 3 and loss < 8}, "state without noise"),
    ({"divisor": lambda records, lot: max(1, len(lot))}, "state without noise"),
    ({"divisor": by_count, "adjacency": "add_remove"}, "number of records"),
    ({"divisor": by_count, "adjacency": "add_remove", "optimizer": heavy, "attached": False}, "number of records"),
    ({"own": lambda data: {"rate": SIZE / len(data)}, "adjacency": "add_remove"}, "number of records"),
    ({"features": lambda x: x - x.mean(0)}, "sums on neighbouring data"),
    ({"features": lambda x: x / x.std(0)}, "sums on neighbouring data"),
    ({"features": lambda x: x / x.abs().max()}, "sums on neighbouring data"),
    ({"rows_of": mostly_clipped}, "sum of clipped rows"),
    ({"returns": lambda model, loss: (loss, {"weight": model.weight.detach().clone()})}, "state without noise"),
    ({"noise": 0.5}, "noise scale"),
    ({"noise": [one**2 / 2 for one in SCHEDULE], "noise_multiplier": SCHEDULE}, "noise scale"),
    ({"epsilon": 0.5}, "epsilon accounted"),
]


@pytest.mark.parametrize(("changes", "expected"), BROKEN)
def test_each_broken_loop_fails(changes, expected):
    found = watch(loop(**changes))
    assert expected in {one.name for one in found.failed}, found.lines()


def only_of_all_records(data):
    if len(data) < RECORDS:
        raise IndexError("99 is out of range")
    return {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "the noise is the same in runs with two seeds"),
        ({"hand_over": copies, "rate_of": by_loss}, "by a copy of the tensor"),
        ({"hand_over": lambda watch, total, noised: watch.release(None, noised), "rate_of": by_loss}, "not looked at"),
        ({"own": only_of_all_records, "adjacency": "add_remove"}, "a run without one record ended with IndexError"),
        ({"order": lambda x: x.flip(0)}, "by their indices in the given data"),
        (
            {"first": clipped, "rows_of": lambda rows: rows},
            "call watch.lot before the loop computes the norms of its gradients",
        ),
        ({"stop": lambda loss, step: step > 3 and loss < 8, "epsilon": 50.0}, "the number of steps is"),
        ({"count": 1}, "the training has one record, so it has no neighbouring data set"),
    ],
)
def test_a_loop_that_shows_too_little_is_left_open_in_words(changes, words):
    gate = judge_watched(watch(loop(**changes)))
    assert (gate.exit_code, words in gate.verdict_line) == (11, True), gate.verdict_line


def test_a_schedule_of_noise_is_accounted_step_by_step():
    # Steps on all records are one Gaussian mechanism, whose mu is the root of the sum of 1 / noise^2.
    whole = claim_from_noise(1 / np.hypot.reduce(1 / np.array(SCHEDULE)), delta=1e-5, adjacency="zero_out")
    assert loop(noise_multiplier=SCHEDULE, rate=1.0).claim.epsilon == pytest.approx(whole.epsilon, rel=0.01)


@pytest.mark.simulations
def test_stopping_by_the_loss_is_found_whether_or_not_the_first_run_stops():
    for seed in range(100, 110):
        found = watch(loop(stop=lambda loss, step: step > 3 and loss < 8), seed=seed)
        assert found.failed, found.lines()


def test_lots_of_a_generator_of_ones_own_leave_a_loop_open():
    def train(data, watch):
        x, model = data.tensors[0], nn.Linear(DIM, 1, bias=False)
        watch, draws = watch(model), np.random.default_rng()
        for _ in range(STEPS):
            lot = np.flatnonzero(draws.random(len(data)) < RATE)
            rows = clipped(model(x[lot]).detach() * x[lot])
            watch.lot(lot, rows)
            noised = rows.sum(0) + torch.from_numpy(draws.standard_normal(DIM)).float()
            watch.release(rows.sum(0), noised)
            model.weight.data -= noised / SIZE

    found = judge_watched(watch(Loop(train, records(), **STATED)))
    assert (found.exit_code, "made different lots or random draws" in found.verdict_line) == (11, True), (
        found.verdict_line
    )


def test_a_planted_unit_passes_through_the_clip_and_lots_of_the_loop():
    system = loop()
    assert is_runner(system)
    assert system.replayable
    unit = Plant(weight=10.0)
    within, out = (system.run(member, 3, plant=unit) for member in (True, False))
    held = [RECORDS - 1 in one.ids for one in within.releases]
    assert [one.ids for one in within.releases] == [one.ids for one in out.releases]
    moved = within.projections(unit) - out.projections(unit)
    first = held.index(True)
    assert moved[first] == pytest.approx(1.0, abs=1e-4)
    assert np.allclose(moved[~np.array(held)], 0, atol=1e-4)


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, "NOT_REFUTED"), ({"noise": 0.5}, "REFUTED"), ({"rows_of": lambda rows: rows}, "REFUTED")],
)
def test_loops_are_audited_with_and_without_a_unit(changes, verdict):
    system = loop(**changes)
    assert audit_replicas(system, plan=plan_replicas(system)).verdict.value == verdict


@pytest.mark.simulations
def test_half_of_the_noise_is_refuted_by_the_runs_alone():
    system = loop(noise=0.5)
    assert audit_replicas(system, plan=plan_replicas(system), seen=watch(loop())).verdict.value == "REFUTED"


@pytest.mark.simulations
def test_a_loop_that_shows_copies_of_its_rows_or_none_is_underpowered():
    copied = loop(shown=torch.clone)
    found = audit_replicas(copied, plan=plan_replicas(copied, noise_share=0.2))
    assert (found.verdict.value, "changed no release" in found.reason) == ("UNDERPOWERED", True)
    silent = audit_replicas(Loop(without_rows, records(), **STATED))
    assert (silent.verdict.value, "got no ids or rows" in silent.reason) == ("UNDERPOWERED", True)


def without_rows(data, watch):
    model = nn.Linear(DIM, 1, bias=False)
    watch = watch(model)
    for _ in range(STEPS):
        watch.lot([0], None)
        watch.release(torch.zeros(DIM), torch.randn(DIM))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: loop(count=0), ValueError, "data must hold at least one record, got none"),
        (lambda: Training(None, None, records(0), delta=1e-5), ValueError, "data must hold at least one record"),
        (lambda: Loop(None, 5, **STATED), TypeError, "data must have a length and indices"),
        (lambda: loop(rate=2), ValueError, "rate .* must be in"),
        (lambda: loop(steps=0), ValueError, "steps must be"),
        (lambda: loop(noise_multiplier=SCHEDULE[1:]), ValueError, "one number for each of the 12 steps, got 11"),
        (lambda: loop(noise_multiplier=[0.0, *SCHEDULE[1:]]), ValueError, "must be a number > 0, got 0.0"),
        (lambda: loop(delta=0), ValueError, "delta must"),
        (lambda: loop(epsilon=-1), ValueError, "epsilon must be a finite number >= 0"),
        (lambda: Loop("train", records(), **STATED), TypeError, "train must be a function"),
        (lambda: loop(observer="moon"), ValueError, "observer"),
        (
            lambda: loop(own=lambda data: {"clip_norm": 2.0}).run(),
            ValueError,
            "got clip_norm: set noise_multiplier and clip_norm in Loop",
        ),
        (
            lambda: Loop(lambda _, watch: watch.lot([0], None), records(), **STATED).run(),
            AttributeError,
            "begin train with",
        ),
        (lambda: Loop(lambda *_: None, records(), **STATED).run(), ValueError, "once, but called it 0 times"),
    ],
)
def test_wrong_use_is_refused(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()


def test_an_exception_of_the_loop_passes_through_with_its_place():
    def stop(loss, step):
        raise MemoryError("no memory")

    with pytest.raises(MemoryError) as raised:
        loop(stop=stop).run()
    assert "raised by train after 1 releases" in raised.value.__notes__[-1]


PRIVATE = torch.arange(3.0)


@pytest.mark.parametrize(
    "shape",
    [
        lambda loss: loss,
        lambda loss: [1, {"loss": loss}],
        lambda loss: {"a": {"w": loss * PRIVATE}},
        lambda loss: (loss * PRIVATE).numpy(),
        lambda loss: [loss * PRIVATE],
    ],
    ids=["a number", "in a table", "in tables", "an array", "a tensor"],
)
def test_numbers_that_train_returns_are_named_where_they_follow_the_data(shape):
    def named(of):
        inner = loop()

        def train(data, watch):
            inner._train(data, watch)
            return shape(of(data))

        found = Loop(train, records(), **STATED).watch()
        assert not found.failed
        return "what train returns depends on the data" in found.aside

    assert named(lambda data: data.tensors[1].square().mean().item())
    assert not named(lambda data: 0.25)
    # A time differs in each run, whatever the data are.
    assert not named(lambda data: time.perf_counter())
