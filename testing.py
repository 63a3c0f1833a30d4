"""Run the conformance checks of your own part as tests of pytest."""

from collections.abc import Mapping
from typing import Any, ClassVar

from .suites.conformance.check import LIMIT, ConformanceCheck, run_checks
from .suites.conformance.conformance import checks_and_subject


class PartTests:
    """A base class of pytest classes: each conformance check of the part is one test.

    Attributes:
        part: ``package.module:Name``, ``file.py:Name``, or a name of the catalogue.
        kind: of the part, such as ``model``; by default it is found out from the part.
        options: of the part.
        limit: seconds that one check may take.

    Example:
        ```
        class TestMyModel(PartTests):
            part = "my_models:small"
            options = {"width": 32}
        ```
    """

    part: ClassVar[str]
    kind: ClassVar[str | None] = None
    options: ClassVar[Mapping[str, Any]] = {}
    limit: ClassVar[float] = LIMIT

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Make one test of each check; pytest calls this when it collects the class."""
        if "conformance_check" in metafunc.fixturenames:
            checks, _ = checks_and_subject(self.part, kind=self.kind, options=self.options)
            metafunc.parametrize("conformance_check", checks, ids=[check.__name__ for check in checks])

    def test_conformance(self, conformance_check: ConformanceCheck) -> None:
        """The part does what its kind requires."""
        _, subject = checks_and_subject(self.part, kind=self.kind, options=self.options)
        for outcome in run_checks([conformance_check], subject, limit=self.limit):
            assert outcome.passed, outcome.line
