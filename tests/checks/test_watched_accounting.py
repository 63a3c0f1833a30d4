"""An accountant's history against what was seen."""

import math
from dataclasses import replace

import pytest
from fedassay.audit.check import ACCOUNTED, MULTIPLIER, STEPS, UPDATES
from fedassay.audit.claim import Adjacency
from fedassay.checks.watched_lots import ledger_checks
from fedassay.defenses.accounting.accountant import epsilon_of
from fedassay.defenses.accounting.stated_laws import claim_from_noise, event_of
from foreign_runs import NOISE, RATE, recording


def failed(run):
    return {one.name for one in ledger_checks(run) if one.passed is False}


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (((NOISE, RATE, 12),), set()),
        (((NOISE, RATE, 20),), set()),
        (((NOISE, RATE, 5), (NOISE, RATE, 7)), set()),
        (((NOISE, RATE, 11),), {STEPS}),
        ((), {STEPS}),
        (((2 * NOISE, RATE, 12),), {MULTIPLIER}),
        (((NOISE, RATE, 5), (2 * NOISE, RATE, 7)), {MULTIPLIER}),
        (((0.9 * NOISE, RATE, 12),), set()),
        # Older steps and other queries are no fault at any place, but each release must be there.
        (((3 * NOISE, RATE, 50), (NOISE, RATE, 12)), set()),
        (((NOISE, RATE, 6), (5 * NOISE, 1.0, 1), (NOISE, RATE, 6)), set()),
        (((2 * NOISE, RATE, 12), (5 * NOISE, 1.0, 1)), {MULTIPLIER}),
    ],
)
def test_steps_and_noise_of_a_history_are_compared(ledger, expected):
    assert failed(recording(ledger=ledger)) == expected


def test_a_printed_epsilon_must_be_that_of_its_history():
    true = claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=12).epsilon
    for printed, expected in ((true, set()), (1.3 * true, set()), (0.9 * true, {ACCOUNTED})):
        assert failed(replace(recording(), accounted=printed, delta=1e-5)) == expected


def test_updates_that_no_release_explains_fail():
    assert failed(replace(recording(), steps=13)) == {UPDATES}


def test_without_an_accountant_nothing_is_compared():
    run = replace(recording(), ledger=None, remarks={"ledger": "no accountant was handed over"})
    assert {(one.passed, one.witness) for one in ledger_checks(run)} == {(None, "no accountant was handed over")}


@pytest.mark.parametrize(("noise", "rate", "steps"), [(10.0, 0.005, 800), (4.0, 0.0005, 50_000), (2.0, 0.001, 20_000)])
def test_a_small_epsilon_is_not_held_against_a_coarse_grid_of_losses(noise, rate, steps):
    event = event_of(((noise, rate, steps),))
    coarse, fine = (
        epsilon_of(event, delta=1e-5, adjacency=Adjacency.ADD_REMOVE, interval=interval) for interval in (1e-3, 5e-5)
    )
    assert fine < coarse
    run = replace(recording(ledger=((noise, rate, steps),)), delta=1e-5)
    assert ACCOUNTED not in failed(replace(run, accounted=fine))
    assert ACCOUNTED in failed(replace(run, accounted=fine / 3))


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (((3 * NOISE, RATE, 50), (NOISE, RATE, 12)), set()),
        (((NOISE, RATE, 62),), set()),
        # The steps of the first training do not stand in for those of this one.
        (((NOISE, RATE, 61),), {STEPS}),
        (((NOISE, RATE, 50), (2 * NOISE, RATE, 12)), {MULTIPLIER}),
    ],
)
def test_a_training_that_goes_on_is_compared_with_what_was_accounted_since_its_start(ledger, expected):
    assert failed(replace(recording(ledger=ledger), earlier=50)) == expected


def test_an_epsilon_that_cannot_be_computed_again_is_not_compared(monkeypatch):
    monkeypatch.setattr("fedassay.checks.watched_lots.epsilon_of", lambda *_, **__: math.inf)
    assert failed(replace(recording(), accounted=7.0, delta=1e-5)) == set()
