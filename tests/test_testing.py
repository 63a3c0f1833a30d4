"""The base class gives the checks of `fedassay check` as tests."""

import pytest
from fedassay.testing import PartTests


class TestIID(PartTests):
    part = "iid"


class TestWithOptions(PartTests):
    part, kind, options = "dirichlet", "partition", {"alpha": 0.5}


class _Broken(PartTests):
    part, kind = "fedassay.fl.partitions:ByOwner", "sampling"


def test_a_fault_fails_the_test():
    from fedassay.suites.conformance.conformance import checks_and_subject

    checks, _ = checks_and_subject(_Broken.part, kind=_Broken.kind)
    with pytest.raises(AssertionError, match="must be a subclass of fedassay's Sampling"):
        _Broken().test_conformance(checks[0])
