"""Result rows and texts of implementation checks.

The result row of a claim's audit.
"""

from collections.abc import Sequence

from ...audit.check import Check, CheckResult
from ...audit.finding import Finding, Verdict
from ..results.record import Record
from .cell import Cell

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
            metric=Check(found.name).metric,
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


def verdict_rows(cell: Cell, finding: Finding, checks: Sequence[CheckResult]) -> list[Record]:
    """Return the row of a finding, and one row per implementation check."""
    return [verdict_row(cell, finding, checks), *check_rows(cell, checks)]


def verdict_row(cell: Cell, finding: Finding, checks: Sequence[CheckResult], artifact: str = "") -> Record:
    """Return the row of a finding, its reason naming every failed check; without a value where nothing was measured.

    ``artifact``: the path of the stored scores.
    """
    measured, words = finding.measurement, failed_words(checks)
    if measured is None:
        return cell.record(metric="epsilon_low", verdict=finding.verdict.value, reason=f"{finding.reason}{words}")
    tested_curve = finding.verdict is not Verdict.REFUTED and measured.below_curve is not None
    return cell.record(
        metric="epsilon_low",
        value=measured.epsilon_low,
        # A lower bound is a one-sided interval, so it has no upper end.
        ci_low=measured.epsilon_low,
        ci_level=1 - measured.alpha,
        ci_method=f"{measured.estimator}, one-sided, {measured.threshold_policy}",
        ceiling=measured.ceiling,
        detectable=measured.detectable,
        verdict=finding.verdict.value,
        route=finding.route or ("curve" if tested_curve else "eps_low"),
        reason=f"{finding.reason}; evidence: {measured.witness}{words}",
        n=measured.canaries or min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=artifact,
    )
