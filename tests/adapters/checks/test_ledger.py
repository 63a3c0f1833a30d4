"""An accountant's history against what was seen."""

from dataclasses import replace

import pytest
from fedassay.adapters.checks.ledger import EPSILON, MULTIPLIER, STEPS, UPDATES, ledger_checks
from fedassay.defenses.accounting.stated_laws import claim_from_noise
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
    ],
)
def test_steps_and_noise_of_a_history_are_compared(ledger, expected):
    assert failed(recording(ledger=ledger)) == expected


def test_a_printed_epsilon_must_be_that_of_its_history():
    true = claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=12).epsilon
    for printed, expected in ((true, set()), (1.3 * true, set()), (0.9 * true, {EPSILON})):
        assert failed(replace(recording(), accounted=printed, delta=1e-5)) == expected


def test_updates_that_no_release_explains_fail():
    assert failed(replace(recording(), steps=13)) == {UPDATES}


def test_without_an_accountant_nothing_is_compared():
    run = replace(recording(), ledger=None, remarks={"ledger": "no accountant was handed over"})
    assert {(one.passed, one.witness) for one in ledger_checks(run)} == {(None, "no accountant was handed over")}
