"""The result row of a claim's audit."""

from collections.abc import Sequence

from ...audit.check_result import CheckResult
from ...audit.finding import Finding, Verdict
from ..jobs.cell import Cell
from ..results.record import Record
from .check import check_rows, failed_words


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
