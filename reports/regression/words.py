"""Write the lines and the table of a comparison that the terminal, the CI summary and the JUnit file print."""

from typing import Any

from ...suites.results.outcome import OK, PRECEDENCE, row_exit_code
from ...suites.results.record import Record, printed_label
from ..reading.run_folder import RunFolder
from ..tables.numerals import NOTHING, lower_bound, metric, metric_value
from ..tables.printed import metric_words
from ..tables.table import Table
from .comparison import Comparison, PairedCell
from .paired import ALPHA, Change

ENDS = f"each end one-sided at {100 * (1 - ALPHA):g} %"


def change_words(cell: PairedCell) -> str:
    """Return one line about a compared metric: its name, both values, the interval of the change, p and the margin."""
    key, change = cell.key, cell.change
    observer = f" ({key.observer})" if key.observer else ""
    before, after = (metric_value(key.metric, value) for value in (change.base, change.new))
    seeds = f"{change.seeds} seed{'s' * (change.seeds > 1)}"
    return (
        f"{key.federation}/{key.defense}/{key.attack}{observer} {metric_words(key.metric, cell.direction)}: "
        f"{before} in the baseline, {after} now, worse by {_worse(key.metric, change)} over {seeds}, "
        f"p {change.p_family:.2g} in its family, margin {cell.margin:g}"
    )


def cell_table(found: Comparison) -> Table:
    """Return a table of the metrics of both runs with their paired differences, in a fixed order."""
    rows = tuple(
        (
            cell.key.federation,
            cell.key.defense,
            f"{cell.key.attack} ({cell.key.observer})" if cell.key.observer else cell.key.attack,
            metric_words(cell.key.metric, cell.direction),
            metric_value(cell.key.metric, cell.change.base),
            metric_value(cell.key.metric, cell.change.new),
            _worse(cell.key.metric, cell.change),
            f"{cell.margin:g}",
            f"{cell.change.p_family:.2g}" if cell.reached else NOTHING,
            NOTHING if cell.change.correlation is None else f"{cell.change.correlation:.2f}".replace("-", "−"),
            str(cell.change.seeds),
            cell.outcome.value,
        )
        for cell in found.cells
    )
    return Table(
        title=f"{found.base.run.name} (base) and {found.run.run.name} (new), paired by seed",
        headers=(
            "federation",
            "defense",
            "attack",
            "metric",
            "base",
            "new",
            "worse by",
            "margin",
            "p (Holm)",
            "r",
            "seeds",
            "outcome",
        ),
        rows=rows,
        numeric=frozenset(range(4, 11)),
        note=f"{correlation_words(found)}. Values are means over seeds of each seed's median. Worse by: positive is "
        f"worse, {ENDS}. r: correlation of the two runs over seeds. FAIL: significant after Holm's correction and more "
        "than half the margin. PASS: the upper end is below the margin.",
    )


def correlation_words(found: Comparison) -> str:
    """Return a line that states the correlation between the paired runs and the number of tested metrics."""
    many = sum(cell.change.correlation is not None for cell in found.cells)
    words = "pairing correlation unknown: no cell varies in both runs over three seeds"
    if found.correlation is not None:
        words = f"pairing correlation {found.correlation:.2f} (mean of {many} cells)".replace("-", "−")
    return f"{words}; {found.family} of {len(found.cells)} cells can have changed and share alpha"


def troubled_rows(folder: RunFolder) -> list[Record]:
    """Return the result rows that cause an exit code other than 0, the most severe code first."""
    found = [row for row in folder.rows() if row_exit_code(row) != OK]
    return sorted(found, key=lambda row: PRECEDENCE.index(row_exit_code(row)))


def row_line(folder: RunFolder, row: Record) -> str:
    """Return one line about a result row that causes a problem: the claim or the attack, and the result."""
    seed = "" if row.seed is None else f" seed {row.seed}"
    what = claim_of_row(folder, row) if row.role in ("audit", "evidence", "probe") else f"{row.attack}{seed}"
    # The first word lets a CI log be searched for one kind of problem.
    kind = "failed" if row.status == "failed" else "claim"
    return f"{kind:<6} {row.federation}/{printed_label(row.defense)}: {what}: {row_words(row)}"


def row_words(row: Record) -> str:
    """Return as text the verdict of a result row, its lower bound on epsilon, and the reason."""
    if row.control and row.status == "ok" and row.verdict != "REFUTED":
        return f"a control that should be REFUTED is {row.verdict.replace('_', ' ') or 'not judged'}"
    shown = f": eps >= {lower_bound(row.value)}" if row.role in ("audit", "evidence") and row.value is not None else ""
    verdict = row.verdict.replace("_", " ") if row.status == "ok" else row.status.upper()
    return f"{verdict or 'not judged'}{shown}" + (f": {row.reason}" if row.reason else "")


def claim_of_row(folder: RunFolder, row: Record) -> str:
    """Return a description of the claim that the result row is about."""
    stated = folder.claim_of(row)
    return stated.claim.describe() if stated else "states no claim"


def gap_lines(found: Comparison) -> list[str]:
    """Return one line for each reason why the two compared runs are not fully comparable."""
    kinds = (("change", found.obstacles), ("lacks", found.missing), ("new", found.new))
    return [f"{kind:<6} {text}" for kind, texts in kinds for text in texts]


def note_lines(found: Comparison) -> list[str]:
    """Return one line for each difference between two runs that does not affect their comparison."""
    return [f"note   {text}" for text in found.notes]


def rounds_lines(folder: RunFolder) -> list[str]:
    """Return one line for each claim that covers fewer rounds than its federation runs."""
    rows = (row for row in folder.claims if (folder.rounds_of(row.federation) or 0) > row.claim.rounds)
    return [
        f"note   {row.federation}/{printed_label(row.defense)}: the claim covers {row.claim.rounds} of the "
        f"{folder.rounds_of(row.federation)} rounds that the federation runs"
        for row in rows
    ]


def as_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as dictionaries and lists, for the option ``--json``."""
    return {
        "base": found.base.run.model_dump(),
        "new": found.run.run.model_dump(),
        "correlation": found.correlation,
        "cells": [
            vars(cell.key)
            | vars(cell.change)
            | {"margin": cell.margin, "reached": cell.reached, "outcome": cell.outcome.value}
            for cell in found.cells
        ],
        "changed": list(found.obstacles),
        "missing_cells": list(found.missing),
        "new_cells": list(found.new),
        "notes": list(found.notes),
    }


def _worse(key: str, change: Change) -> str:
    """``0.090 [0.061, 0.119]``, with one more digit than the metric has in other tables, because changes are small."""
    digits = metric(key).decimals + 1
    numbers = [
        f"{value:.{digits}f}".replace("-", "−")
        for value in (change.worse, change.low, change.high)
        if value is not None
    ]
    return numbers[0] + (f" [{numbers[1]}, {numbers[2]}]" if len(numbers) == 3 else "")
