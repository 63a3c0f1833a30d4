"""All checks of one run together: their false alarms, the finding, and the words."""

import pytest
from fedassay.audit.ledger import WATCHED, Share
from fedassay.checks.watched_run import watched
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from foreign_runs import NOISE, RATE, recording

STEPS = (2, 5, 12, 30)


def accused(count):
    return sum(bool(watched(recording(seed, steps=STEPS[seed % 4])).failed) for seed in range(count))


@pytest.mark.long
def test_none_of_a_thousand_correct_runs_is_accused():
    assert accused(1000) == 0


@pytest.mark.simulations
def test_the_probability_of_a_false_alarm_is_at_most_the_stated_one(monkeypatch):
    monkeypatch.setitem(WATCHED.shares, "watched run", Share(total=0.5, claims=1, groups=16))
    # 500 expected at most, with a standard deviation of 16; fewer, because thirteen of sixteen families exist.
    assert accused(1000) < 500 * 13 / 16 + 50


def test_a_correct_run_passes_and_a_broken_one_refutes():
    claim = claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=12)
    assert watched(recording()).finding(claim).verdict.value == "NOT_REFUTED"
    found = watched(recording(ledger=()))
    assert [one.name for one in found.failed] == ["steps accounted"]
    assert found.lines()[0].startswith("FAILED: steps accounted: the accountant counts 0 steps, at least 12 required")
    assert found.finding(claim).verdict.value == "REFUTED"
