"""The numbers to which everything that an observer receives is reduced: nothing else is in them, and bugs show."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.checks.received import ALL_ROUNDS, ReceivedNumbers
from fedassay.fl.message import Message
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundEvent

RUNS, CLIENTS, DIM = 40, 3, 12


class Plain(Protection):
    """No protection."""


def event(values, *, round=0, side=None, shuffled=False, state=None):
    present = torch.ones(values.shape[:2], dtype=torch.bool)
    message = Message(values=values, present=present, senders=tuple(range(values.shape[1])), side=side or {})
    received = replace(message, senders=None) if shuffled else message
    total = values.sum(1)
    return RoundEvent(
        round=round,
        broadcast=torch.zeros_like(total),
        cohort=present,
        reports=message,
        received=received,
        aggregate=total,
        model=total,
        lots={},
        state=state or {},
    )


def recorded(observer, *events, only=None):
    direction = torch.ones(DIM) / DIM**0.5
    recorder = ReceivedNumbers(observer=observer, protection=Plain(), holder=0, direction=direction, only=only)
    for one in events:
        recorder.watch(one)
    return recorder


def numbers(observer, *events):
    parts = recorded(observer, *events).numbers(torch.zeros(RUNS, DIM))
    return np.concatenate(list(parts.values()), axis=1)


@pytest.fixture
def values():
    return torch.from_numpy(np.random.default_rng(0).standard_normal((RUNS, CLIENTS, DIM))).float()


def exchanged(values):
    """The same sum, from other reports."""
    return torch.cat([values[:, 1:2], values[:, :1], values[:, 2:]], dim=1)


def test_an_observer_of_sums_gets_no_number_of_single_reports(values):
    for observer in (AGGREGATE, GLOBAL_MODELS):
        one, other = (numbers(observer, event(rows)) for rows in (values, exchanged(values)))
        assert np.allclose(one, other, atol=1e-5)
    assert not np.allclose(numbers(UPLOADS, event(values)), numbers(UPLOADS, event(exchanged(values))))


@pytest.mark.parametrize("observer", [UPLOADS, AGGREGATE])
def test_a_part_that_is_asked_for_alone_has_the_numbers_that_it_has_among_all(observer, values):
    rounds = [event(values * turn, side={"ones": values.sign()}, state={"sum": values.sum(1)}) for turn in (1, 2)]
    every = recorded(observer, *rounds).numbers(torch.zeros(RUNS, DIM))
    single = [name for name in every if "all rounds" not in name]
    assert len(single) >= 4
    for name in single:
        alone = recorded(observer, *rounds, only=frozenset({name})).numbers(torch.zeros(RUNS, DIM))
        assert list(alone) == [name]
        assert np.array_equal(alone[name], every[name])
    absent = recorded(observer, *rounds, only=frozenset({"absent"})).numbers(torch.zeros(RUNS, DIM))
    assert absent["absent"].shape == (RUNS, 0)


def test_the_order_of_shuffled_rows_is_in_the_numbers_by_place_alone(values):
    kinds = [recorded(SHUFFLED, event(rows, shuffled=True)).rounds[0] for rows in (values, exchanged(values))]
    moved = {name for name in kinds[0] if not np.allclose(kinds[0][name], kinds[1][name], atol=1e-5)}
    assert moved == {name for name in kinds[0] if name.endswith(" by place")} != set()


def test_a_number_that_travels_with_shuffled_rows_gives_them_an_order(values):
    names = torch.arange(CLIENTS).expand(RUNS, CLIENTS)
    one, other = (
        numbers(SHUFFLED, event(rows, shuffled=True, side={"id": names})) for rows in (values, exchanged(values))
    )
    assert not np.allclose(one, other)


def test_the_step_of_a_grid_and_the_parity_on_it_are_numbers(values):
    grid = (values / 0.25).round()
    even = 0.25 * (2 * (grid / 2).round())
    odd = even + 0.25
    assert not np.allclose(numbers(UPLOADS, event(even)), numbers(UPLOADS, event(odd)), atol=0.3)


def test_arrays_of_the_public_state_are_numbers_of_every_run(values):
    counts = torch.arange(RUNS, dtype=torch.float32).view(-1, 1)
    found = numbers(GLOBAL_MODELS, event(values, state={"nested": {"count": counts}}))
    assert any(np.array_equal(column, np.arange(RUNS)) for column in found.T)


@pytest.mark.parametrize(("share", "shown"), [(0.0, False), (0.5, True)])
def test_noise_that_the_public_state_held_before_hides_no_row(values, share, shown):
    noise = 100 * torch.from_numpy(np.random.default_rng(1).standard_normal((RUNS, DIM))).float()
    held = share * noise if share else noise.flip(0)
    plain = event(values, state={"next": held})
    found = numbers(GLOBAL_MODELS, replace(plain, aggregate=plain.aggregate + noise))
    row = plain.aggregate.double().sum(1).numpy()
    varies = found[:, found.std(0) > 0]
    assert (np.abs(np.corrcoef(varies.T, row)[-1, :-1]).max() > 0.9) == shown


def test_numbers_that_are_none_or_infinite_stay_finite(values):
    values[0, 0, 0], values[1, 0, 0] = float("nan"), float("inf")
    assert np.isfinite(numbers(UPLOADS, event(values))).all()


def test_of_many_rounds_the_projections_are_all_kept_alone_or_among_others(values):
    """Of 30 rounds other numbers are kept of the first and the last twelve."""
    rounds = [event(turn * values, round=turn) for turn in range(30)]
    (name,) = (name for name in recorded(AGGREGATE, *rounds).numbers(torch.zeros(RUNS, DIM)) if "projections" in name)
    assert name == f"aggregate{ALL_ROUNDS}"
    for only in (None, frozenset({name})):
        found = recorded(AGGREGATE, *rounds, only=only).numbers(torch.zeros(RUNS, DIM))[name]
        assert found.shape == (RUNS, 30)
        np.testing.assert_allclose(found, np.outer(found[:, 1], np.arange(30)), rtol=1e-5)


def test_rounds_are_kept_one_by_one_and_together(values):
    found = numbers(UPLOADS, event(values), event(2 * values, round=1))
    first = values[:, 0].double().sum(1).numpy()
    for wanted in (first, 2 * first, 3 * first):
        assert any(np.allclose(column, wanted, atol=1e-4) for column in found.T)
