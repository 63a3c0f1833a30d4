"""Result rows and texts of implementation checks."""

from collections.abc import Sequence

from ...audit.check_result import CheckResult
from ..jobs.cell import Cell
from ..results.record import Record

# Words of their own, so that no reader of the rows takes a check's verdict for a claim's.
KEPT, BROKEN = "KEPT", "BROKEN"
"""Verdicts of a check's row: passed, failed."""


def check_rows(cell: Cell, results: Sequence[CheckResult]) -> list[Record]:
    """Return one result row per implementation check; a check that does not apply is recorded as skipped, with the
    reason.
    """
    return [
        cell.record(
            role="probe",
            attack="replay",
            attack_version="1",
            metric=f"probe_{found.name.replace(' ', '_')}",
            value=found.measured,
            verdict="" if found.passed is None else KEPT if found.passed else BROKEN,
            unit=found.unit,
            status="skipped" if found.passed is None else "ok",
            reason=found.witness if found.passed is None else found.words,
        )
        for found in results
    ]


def failed_words(results: Sequence[CheckResult]) -> str:
    """Return the text that names every failed check, to be appended to the verdict's reason; empty if all checks
    passed.
    """
    # Reports cut a reason at "; probe: ", so these words stay as they are.
    return "".join(f"; probe: {found.words}" for found in results if found.passed is False)
