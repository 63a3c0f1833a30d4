"""Messages that exceed a claim about the final model alone do not fail it: the public receives less."""

import pytest
from fedassay.audit.check import Check
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.vertical.protection import VerticalProtection
from toy_vertical import label_case


@pytest.mark.parametrize(("observer", "passed"), [(FINAL_MODEL, None), (PASSIVE_PARTY, False)])
def test_what_exceeds_a_claim_fails_it_only_where_the_adversary_receives_it(observer, passed):
    case = label_case(VerticalProtection(), observer=observer)
    more, less = (Check("a").at_most(value, 1.0, unit="epsilon", witness="draws") for value in (2.0, 0.5))
    found = case.judged(more, "released labels")
    assert (found.name, found.passed, found.detects) == ("a", passed, None)
    assert ("released labels exceed the claim" in found.witness) is (passed is None)
    assert case.judged(less, "released labels") is less
