"""Every failed check says what was seen, what is allowed, where it comes from, why, and what mends it."""

import pickle

import pytest
from fedassay.audit.check import (
    CHECKS,
    FINITE,
    LAW_EPSILON,
    OWN_IN_REPLICAS,
    PLAYED,
    REPLAYED,
    SENSITIVITY,
    VECTORS,
    Check,
    CheckResult,
    explained_words,
    short_words,
)
from fedassay.fl.hooks import overrides
from fedassay.fl.protection import Protection
from fedassay.fl.transfer.protection import TransferProtection
from fedassay.fl.vertical.protection import VerticalProtection

NEVER_FAIL = {FINITE, REPLAYED, PLAYED}
KINDS = (Protection, TransferProtection, VerticalProtection)
FOREIGN = {"clipped sum", "noised step", "optimizer", "data loader", "accountant", "model", "preparation of the data"}


@pytest.mark.parametrize("check", [one for one in CHECKS.values() if one not in NEVER_FAIL], ids=str)
def test_every_check_that_can_fail_has_a_hook_a_cause_and_a_mend(check):
    assert check.hook
    assert check.cause
    assert check.mend
    assert all(any(hasattr(kind, one) for kind in KINDS) or one in FOREIGN for one in check.hook)
    words = check.failed("a witness", 2.0, 1.0, unit="share of runs").words
    assert check.cause in explained_words(words)
    assert check.mend in explained_words(words)
    assert short_words(words).startswith(f"{check}: ")
    assert short_words(words).endswith("at most 100 % allowed")


@pytest.mark.parametrize("name", [*sorted(NEVER_FAIL), Check("of somebody else"), "no check"])
def test_a_check_without_an_explanation_cannot_fail(name):
    with pytest.raises(ValueError, match="state its hook, cause and mend"):
        CheckResult(name=name, passed=False, witness="")


def test_numbers_have_units():
    share = OWN_IN_REPLICAS.at_most(0.4995, 0.0021, unit="share of repeated releases", witness="all rounds").words
    assert "49.95 % of the releases without the canary equal one of another run, at most 0.21 % allowed" in share
    assert (
        "the published noise distribution implies epsilon 5.2, at most 4 allowed"
        in LAW_EPSILON.failed("", 5.2, 4.0, unit="epsilon").words
    )
    assert "1 vector, none allowed" in VECTORS.failed("", 1.0, 0.0, unit="vectors").words
    near = SENSITIVITY.failed("", 1.00001, 1.0, unit="L2 norm").words
    assert "1.00001 in the L2 norm, at most 1 allowed" in near


def test_a_failed_check_without_numbers_says_what_was_seen_by_its_witness():
    words = SENSITIVITY.failed("a row of infinity").words
    assert words.startswith("sensitivity: a row of infinity; in `local_step` or ")
    assert explained_words(words) == words


def test_a_check_of_one_part_and_a_copy_explain_their_failures_alike():
    for check in (SENSITIVITY.of("layer 1"), pickle.loads(pickle.dumps(SENSITIVITY))):
        assert SENSITIVITY.mend in check.failed("").words


def test_only_hooks_that_a_protection_has_are_named():
    from fedassay.checks.results import placed

    class Reports(Protection):
        def report(self, updates, context, state, rng):
            return updates

    (found,) = placed([SENSITIVITY.failed("")], Reports())
    assert found.hook == ("report",)
    assert overrides(Reports(), "report")
