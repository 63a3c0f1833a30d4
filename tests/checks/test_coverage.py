"""What was looked at follows from the results of the checks that ran; lots, clip, noise and accounting must be."""

import pytest
from fedassay.audit.check import CHECKS, CheckResult
from fedassay.checks.coverage import NEVER, coverage_of


def made(name, **more):
    return CheckResult(name=name, passed=True, witness="", **more)


def blind(name):
    return CHECKS[name].skipped("no law is published")


def test_a_check_that_was_made_is_looked_at_and_one_that_was_not_is_named_with_its_reason():
    found = coverage_of([made("noise present"), blind("sensitivity")], sampled=False)
    assert found.looked_at == ("noise present",)
    assert found.not_looked_at[0] == "sensitivity: no law is published"


def test_compared_channels_count_and_those_that_were_not_compared_are_named():
    message = made(
        "whole message", compared=("aggregate", "aggregate: trailing zero bits"), not_compared=("text: why",)
    )
    found = coverage_of([message, made("noise scale")], sampled=False)
    assert found.looked_at == ("whole message", "noise scale", "aggregate", "aggregate: trailing zero bits")
    assert found.not_looked_at == ("text: why", *NEVER)


def test_topics_that_no_result_names_were_not_looked_at():
    found = coverage_of([made("sensitivity")], sampled=True)
    topics = {item.partition(":")[0] for item in found.not_looked_at}
    assert topics >= {"side channels", "floating point", "weights", "sampling"}
    seen = coverage_of([made("noise present"), made("canary arrives")], sampled=True)
    assert not {item.partition(":")[0] for item in seen.not_looked_at} & {"weights", "sampling"}


def test_a_smaller_federation_is_stated():
    found = coverage_of([made("x")], sampled=False, federation=["2 of 10 clients"], smaller=["clients: 2 of 10"])
    assert "2 of 10 clients" in found.looked_at
    assert "clients: 2 of 10" in found.not_looked_at


SUBJECTS = ("participation as accounted", "sensitivity", "noise scale", "epsilon of the law")


@pytest.mark.parametrize("missing", range(5))
@pytest.mark.parametrize("named", [True, False])
def test_lots_clip_noise_and_accounting_are_each_missed(missing, named):
    checks = [(blind if number == missing else made)(name) for number, name in enumerate(SUBJECTS)]
    checks = [one for one in checks if one.passed or named]
    words = coverage_of(checks, sampled=True).blind
    assert bool(words) == (missing < 4)
    if missing < 4:
        assert words.startswith("not looked at: ")
        assert f"({SUBJECTS[missing]}: no law is published)" in words or (not named and "(no check applies)" in words)
    # Where nothing is sampled there are no lots.
    assert bool(coverage_of(checks, sampled=False).blind) == (0 < missing < 4)


def test_checks_of_the_whole_claim_and_strong_trials_look_at_all_subjects():
    assert not coverage_of([*map(blind, SUBJECTS), made("epsilon of the releases")], sampled=False).blind
    for detects, strong in ((7.9, True), (8.1, False), (None, False)):
        found = coverage_of([made("all that is received", detects=detects)], sampled=True, epsilon=4.0)
        assert (found.blind == "") is strong
    assert not coverage_of([], sampled=True).blind
