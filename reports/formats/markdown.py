"""The report as markdown for a pull request: failures first, cut before a comment grows too long."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.numerals import metric
from ..tables.printed import VERDICTS
from ..tables.run_tables import labels, overview, run_tables, tables_of
from ..tables.tables import OmissionRow, omission_rows
from ..tables.unread import unread_lines
from .escaped import cell, cut
from .page import TEMPLATES


def markdown(folder: RunFolder) -> str:
    """At most ``LIMIT`` bytes: verdict, what needs a look, claims, attacks, utility, omissions, provenance."""
    tables = run_tables(folder)
    return _rendered(
        title=str(folder.manifest.suite.get("name", "")),
        verdict_line=summary.verdict_line(folder),
        alarms=_alarms(folder),
        tables=tables,
        sources=[("Provenance", summary.provenance(folder), summary.reproduce(folder))],
    )


def markdown_of_several(folders: Sequence[RunFolder]) -> str:
    """The same of several runs side by side."""
    names = labels(folders)
    tables = [overview(folders), *tables_of(folders)]
    return _rendered(
        title=f"{len(folders)} runs",
        verdict_line="Every run has a verdict of its own.",
        alarms=[
            f"{cell(name)}: {alarm}" for name, folder in zip(names, folders, strict=True) for alarm in _alarms(folder)
        ],
        tables=tables,
        sources=[
            (f"Provenance of {name}", summary.provenance(folder), summary.reproduce(folder))
            for name, folder in zip(names, folders, strict=True)
        ],
    )


def _rendered(**parts: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell
    return cut(environment.get_template("report.md.j2").render(**parts))


def _alarms(folder: RunFolder) -> list[str]:
    return [*_claim_alarms(claim_rows(folder)), *_failures(omission_rows(folder)), *_unread(folder)]


def _claim_alarms(rows: Sequence[ClaimRow]) -> list[str]:
    return [
        f"**{VERDICTS.get(row.verdict, row.verdict)}** {cell(row.defense)}"
        f"{' (a control: it must be REFUTED)' if row.must_fall else ''}: {cell(row.says)}{_reason(row)}"
        for row in rows
        if row.alarming
    ]


def _reason(row: ClaimRow) -> str:
    return f"; {cell(row.record.reason)}" if row.record and row.record.reason else ""


def _failures(rows: Sequence[OmissionRow]) -> list[str]:
    return [f"**failed** {cell(_target(row))}: {cell(row.reason)}" for row in rows if row.status == "failed"]


def _unread(folder: RunFolder) -> list[str]:
    return [f"**cannot be read** {cell(line)}" for line in unread_lines(folder)]


def _target(row: OmissionRow) -> str:
    return f"{row.attack}, {metric(row.metric).name}, on {row.where}"
