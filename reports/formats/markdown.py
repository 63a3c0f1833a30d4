"""Write the report as a pull-request comment in Markdown, with problems first and a limit on its length."""

from collections.abc import Sequence
from typing import Any

from ..overviews.sections import run_tables
from ..overviews.several_runs import overview, run_labels, tables_of
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.pooled_rows import OmissionRow, omission_rows
from ..tables.printed import VERDICTS
from ..tables.unread import unread_lines
from .escaped import cell, cut
from .templates import environment


def markdown(folder: RunFolder) -> str:
    """Return the Markdown report of one run in at most ``LIMIT`` bytes: verdict, problems, tables, provenance."""
    tables = run_tables(folder)
    return _rendered(
        title=str(folder.manifest.suite.get("name", "")),
        verdict_line=summary.verdict_line(folder),
        problems=_problems(folder),
        stops=_stops(claim_rows(folder)),
        tables=tables,
        sources=[("Provenance", summary.provenance(folder), summary.reproduce(folder))],
    )


def markdown_of_several(folders: Sequence[RunFolder]) -> str:
    """Return the Markdown report of several runs, with their tables side by side."""
    names = run_labels(folders)
    tables = [overview(folders), *tables_of(folders)]
    return _rendered(
        title=f"{len(folders)} runs",
        verdict_line="Each run has its own verdict.",
        problems=[
            f"{cell(name)}: {line}" for name, folder in zip(names, folders, strict=True) for line in _problems(folder)
        ],
        stops=[
            f"{cell(name)}: {line}"
            for name, folder in zip(names, folders, strict=True)
            for line in _stops(claim_rows(folder))
        ],
        tables=tables,
        sources=[
            (f"Provenance of {name}", summary.provenance(folder), summary.reproduce(folder))
            for name, folder in zip(names, folders, strict=True)
        ],
    )


def _rendered(**parts: Any) -> str:
    own = environment(autoescape=False)
    own.filters["cell"] = cell
    return cut(own.get_template("report.md.j2").render(**parts))


def _problems(folder: RunFolder) -> list[str]:
    return [*_claim_problems(claim_rows(folder)), *_failures(omission_rows(folder)), *_unread(folder)]


def _claim_problems(rows: Sequence[ClaimRow]) -> list[str]:
    return [
        f"**{VERDICTS.get(row.verdict, row.verdict)}** {cell(row.label)}"
        f"{' (control: should be REFUTED)' if row.should_be_refuted else ''}: {cell(row.claim_text)}{_reason(row)}"
        for row in rows
        if row.needs_attention
    ]


def _reason(row: ClaimRow) -> str:
    return f"; {cell(row.record.reason)}" if row.record and row.record.reason else ""


def _stops(rows: Sequence[ClaimRow]) -> list[str]:
    """At which look each sequential audit stopped and why, those with the same words in one line."""
    many, found = len({row.federation for row in rows}) > 1, dict[str, list[str]]()
    for row in rows:
        if row.record and row.record.stopped:
            defense = f"{row.federation}/{row.label}" if many else row.label
            found.setdefault(row.record.stopped, []).append(f"{defense} ({row.claim_text})")
    return [cell(f"{'; '.join(audits)}: {words}") for words, audits in found.items()]


def _failures(rows: Sequence[OmissionRow]) -> list[str]:
    return [f"**failed** {cell(_target(row))}: {cell(row.reason)}" for row in rows if row.status == "failed"]


def _unread(folder: RunFolder) -> list[str]:
    return [f"**cannot be read** {cell(line)}" for line in unread_lines(folder)]


def _target(row: OmissionRow) -> str:
    return f"{row.what}, on {row.where}"
