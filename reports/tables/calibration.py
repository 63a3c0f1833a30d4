"""Tabulate how often each estimator refutes true claims, and how it handles degenerate inputs; give the outcome."""

from collections.abc import Sequence

from ...audit.calibration import CalibrationRow
from ...audit.wording import plain
from ...suites.results.outcome import FAIL, OK, Outcome
from .table import Table


def error_table(rows: Sequence[CalibrationRow]) -> Table:
    """Return a table of simulated situations, which shows how often a true claim was refuted, compared with alpha."""
    return Table(
        title="Observed error against alpha",
        headers=("estimator", "kind", "situation", "refuted", "of", "observed", "alpha", "at most", "outcome"),
        rows=tuple(_error_cells(row) for row in rows if not row.degenerate),
        numeric=frozenset({3, 4, 5, 6, 7}),
        note="at most: the 99.9 % quantile of Binomial(repeats, alpha). Only a bound can fail. A credible interval or "
        "an estimate counts as refuted when it lies above the claim.",
    )


def degenerate_table(rows: Sequence[CalibrationRow]) -> Table:
    """Return a table with one row per degenerate input and kind of outcome, which names the estimators with that
    outcome and gives the reason that the first of them stated.
    """
    groups: dict[tuple[str, str], list[CalibrationRow]] = {}
    for row in rows:
        # Grouped, because many estimators answer a degenerate input in the same way.
        if row.degenerate:
            groups.setdefault((row.situation, row.outcome.partition(":")[0]), []).append(row)
    inputs = list(dict.fromkeys(name for name, _ in groups))
    found = sorted(groups.items(), key=lambda group: inputs.index(group[0][0]))
    return Table(
        title="Degenerate inputs",
        headers=("input", "outcome", "estimators", "for instance"),
        rows=tuple((name, outcome, _names(same), _reason(same[0])) for (name, outcome), same in found),
        note="finite: a number that is neither NaN nor infinite nor the edge of a grid. error: a ValueError with a "
        "reason.",
    )


def calibration_outcome(rows: Sequence[CalibrationRow]) -> Outcome:
    """Return FAIL if a true claim was refuted too often, or if a degenerate input gave neither an answer nor a clear
    error; otherwise OK.
    """
    failed = [f"{row.estimator} ({row.situation})" for row in rows if row.fails]
    if failed:
        return Outcome(verdict_line=f"FAIL: {', '.join(failed)}", exit_code=FAIL)
    # Estimators and not rows: each one is repeated in several situations.
    bounds = len({row.estimator for row in rows if row.limit is not None})
    return Outcome(verdict_line=f"OK: {bounds} bounds hold in {len(rows)} situations", exit_code=OK)


def _error_cells(row: CalibrationRow) -> tuple[str, ...]:
    # A degenerate or unusable situation has no count; a zero there would look like a perfect estimator.
    counted = row.refuted is not None
    return (
        row.estimator,
        row.kind.value,
        row.situation,
        str(row.refuted) if counted else "",
        str(row.repeats) if counted else "",
        f"{row.refuted / row.repeats:.4f}" if row.refuted is not None else "",
        plain(row.alpha) if row.limit is not None else "",
        str(row.limit) if row.limit is not None else "",
        row.outcome,
    )


def _names(rows: Sequence[CalibrationRow]) -> str:
    return ", ".join(row.estimator for row in rows)


def _reason(row: CalibrationRow) -> str:
    return row.outcome.partition(": ")[2]
