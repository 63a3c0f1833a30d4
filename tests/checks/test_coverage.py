"""What was looked at follows from the results of the checks that ran, and more than half blind is too weak."""

import pytest
from fedassay.audit.check import Check, CheckResult
from fedassay.checks.coverage import NEVER, coverage_of


def made(name, **more):
    return CheckResult(name=name, passed=True, witness="", **more)


def blind(name):
    return Check(name).skipped("no law is published")


def test_a_check_that_was_made_is_looked_at_and_one_that_was_not_is_named_with_its_reason():
    found = coverage_of([made("noise present"), blind("sensitivity")], sampled=False)
    assert found.looked_at == ("noise present",)
    assert found.not_looked_at[0] == "sensitivity: no law is published"
    assert not found.half_blind


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


SUBJECTS = ("sensitivity", "noise scale", "noise fresh between rounds", "epsilon of the law")


@pytest.mark.parametrize(("seen", "weak"), [(4, False), (2, False), (1, True), (0, True)])
def test_more_than_half_of_the_subjects_unseen_is_too_weak(seen, weak):
    checks = [(made if number < seen else blind)(name) for number, name in enumerate(SUBJECTS)]
    words = coverage_of(checks, sampled=False).half_blind
    assert bool(words) == weak
    assert not weak or words.startswith(f"{4 - seen} of 4 implementation checks could not be made: ")


def test_reports_that_fit_their_law_need_no_check_of_additive_noise_and_no_checks_are_no_weakness():
    checks = [*map(blind, SUBJECTS[:3]), made("law fits the reports")]
    assert not coverage_of(checks, sampled=False).half_blind
    assert not coverage_of([], sampled=False).half_blind
