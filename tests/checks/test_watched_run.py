"""All checks of one run together: their false alarms, the finding, and the words."""

from dataclasses import replace

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


@pytest.mark.long
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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sum_that_is_no_number_limits_the_claim_and_noise_that_is_none_fails(value):
    claim, run = claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=12), recording()

    def with_odd(step, *names):
        one = run.releases[step]
        changes = {name: getattr(one, name).clone() for name in names}
        for changed in changes.values():
            changed[0] = value
        releases = [replace(one, **changes) if number == step else other for number, other in enumerate(run.releases)]
        return watched(replace(run, releases=tuple(releases)))

    let_through = with_odd(3, "received", "released", "expected")
    assert [one.words for one in let_through.failed] == []
    limit = "the sum of step 3 is NaN or infinite: the claim holds for records that cannot cause such values"
    assert let_through.limit == limit
    assert f"limited: finite for all rows: {limit}" in let_through.lines()
    finding = let_through.finding(claim)
    assert (finding.verdict.value, limit in finding.line(), finding.limit) == ("NOT_REFUTED", True, limit)
    # Of a finite sum, the system itself makes what is no number.
    assert [one.name for one in with_odd(3, "released").failed] == ["noise present"]
