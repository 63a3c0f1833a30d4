"""One probability of a false alarm per run: the levels of all tests add up to it."""

import numpy as np
import pytest
from fedassay.audit.ledger import SUITE, WATCHED, Ledger, Share


@pytest.mark.parametrize("ledger", [SUITE, WATCHED])
@pytest.mark.parametrize("tests", [1, 1000])
def test_the_levels_of_all_tests_add_up_to_the_probability_of_the_run(ledger, tests):
    levels = [
        ledger.level(family, tests) * tests * share.groups * share.claims for family, share in ledger.shares.items()
    ]
    assert sum(levels) == pytest.approx(ledger.total, rel=1e-9)


def test_the_sums_are_the_stated_ones():
    assert SUITE.total == pytest.approx(0.046, rel=1e-2)
    few = {"few values", "released labels", "vertical runs"}
    refuting = {"trials", "preparation", "decisions"}
    others = SUITE.shares.keys() - few - refuting
    assert sum(SUITE.shares[family].total for family in others) < 1.1e-3
    assert WATCHED.total == 1e-5


def test_dependent_tests_fail_together_no_oftener_than_their_total():
    # 64 copies of one p-value and 64 independent ones, in 2,000 runs: 400 expected at most, standard deviation 18.
    ledger = Ledger({"copies": Share(total=0.1, claims=1, groups=8), "others": Share(total=0.1, claims=1)})
    rng, runs = np.random.default_rng(0), 2000
    copies, others = rng.random((runs, 1)), rng.random((runs, 64))
    failed = (copies < ledger.level("copies", 8)).any(1) | (others < ledger.level("others", 64)).any(1)
    assert 0 < failed.sum() <= runs * ledger.total + 4 * 18


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"noise, .*got 'nois'"):
        SUITE.level("nois")
