"""The worst of several results of a check: a pass is not hidden by a skip, nor a skip or a failure by a pass."""

from fedassay.audit.check import DRAWN, Check, CheckResult
from fedassay.checks.results import worst_results

PASSED = DRAWN.at_most(1.0, 2.0, unit="epsilon", witness="some runs")
FAILED = DRAWN.at_most(3.0, 2.0, unit="epsilon", witness="other runs")
SKIPPED = CheckResult(name=DRAWN, passed=None, witness="no noise")


def test_a_pass_names_what_was_not_judged_in_any_order():
    for results in ([PASSED, SKIPPED, SKIPPED], [SKIPPED, PASSED, SKIPPED]):
        (found,) = worst_results(results, "pairs")
        assert found.passed
        assert found.witness == "some runs; no result for 2 of 3 pairs: no noise"
    assert worst_results([PASSED, PASSED], "pairs") == (PASSED,)


def test_a_check_that_is_required_has_not_passed_where_it_was_skipped():
    assert worst_results([PASSED, SKIPPED], "pairs", required=DRAWN) == (SKIPPED,)


def test_the_first_failure_counts_before_all_else():
    again = DRAWN.at_most(9.0, 2.0, unit="epsilon", witness="later runs")
    for required in ("", DRAWN):
        assert worst_results([SKIPPED, PASSED, FAILED, again], "claims", required=required) == (FAILED,)


def test_of_passes_that_one_counts_which_is_nearest_to_its_own_limit():
    far = DRAWN.at_most(1.5, 10.0, unit="epsilon", witness="another claim")
    assert worst_results([far, PASSED], "claims") == (PASSED,)
    least, more = (Check("b").at_least(value, 0.1, unit="p-value", witness="draws") for value in (0.2, 0.9))
    assert worst_results([more, least], "claims") == (least,)


def test_each_check_has_one_result_in_their_order():
    other = CheckResult(name="b", passed=None, witness="no law")
    assert worst_results([other, PASSED, other, FAILED], "claims") == (other, FAILED)
