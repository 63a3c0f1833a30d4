"""Define a cell, the smallest unit of work that is stored and resumed, and the rows of an audit's cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...audit.check import Check, CheckResult
from ...audit.finding import Finding, Verdict
from ...audit.finite import limit_of
from .record import Record


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The smallest unit of work that a run stores and resumes, such as one attack on one trained federation.

    Args:
        cell_id: hash of everything that determines its rows.
        facts: the record fields that all its rows share.
    """

    cell_id: str
    facts: dict[str, Any]

    def record(self, **measured: Any) -> Record:
        """Build a result row of this unit of work (cell); the values in ``measured`` override the fields that all its
        rows share.
        """
        # Measured fields win: rows of one seed in a pooled cell, for example, replace its seed.
        return Record(cell_id=self.cell_id, **{**self.facts, **measured})

    @property
    def title(self) -> str:
        """A title of this unit of work for progress lines and failures: federation, defense, attack and seed."""
        words = (self.facts["federation"], self.facts["defense"], self.facts["attack"])
        return " ".join([*words, f"seed {self.facts['seed']}" if self.facts["seed"] is not None else "pooled"])


def check_rows(cell: Cell, results: Sequence[CheckResult]) -> list[Record]:
    """Return one result row per implementation check; a check that does not apply is recorded as skipped, with the
    reason.
    """
    return [
        cell.record(
            role="check",
            attack="replay",
            attack_version="1",
            metric=Check(found.name).metric,
            value=found.measured,
            verdict="" if found.passed is None else "PASSED" if found.passed else "FAILED",
            unit=found.unit,
            status="skipped" if found.passed is None else "ok",
            reason=found.witness if found.passed is None else found.words,
        )
        for found in results
    ]


def failed_words(results: Sequence[CheckResult]) -> str:
    """Return the text that names every failed check, to be appended to the verdict's reason; empty if there is none."""
    # Reports cut a reason at these words.
    return "".join(f"; implementation check: {found.words}" for found in results if found.passed is False)


def verdict_rows(cell: Cell, finding: Finding, checks: Sequence[CheckResult]) -> list[Record]:
    """Return the result row of a finding (the verdict on one claim with its measurement), and one row per
    implementation check.
    """
    return [verdict_row(cell, finding, checks), *check_rows(cell, checks)]


def verdict_row(cell: Cell, finding: Finding, checks: Sequence[CheckResult], artifact: str = "") -> Record:
    """Return the result row of a finding (the verdict on one claim), with a reason that names every failed check. The
    row has no value if nothing was measured.

    ``artifact``: the path of the stored scores.
    """
    measured, words, limit = finding.measurement, failed_words(checks), limit_of(checks)
    if measured is None:
        reason = f"{finding.reason}{words}"
        return cell.record(metric="epsilon_low", verdict=finding.verdict.value, reason=reason, limit=limit)
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
        weak=finding.weak,
        limit=limit,
        route=finding.route or ("curve" if tested_curve else "eps_low"),
        reason=f"{finding.reason}; evidence: {measured.witness}{words}",
        n=measured.canaries or min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=artifact,
    )
