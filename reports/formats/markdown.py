"""Write the report as a pull-request comment in Markdown: escaped, problems first, below GitHub's limit of size."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..reading.claims import ClaimRow, claim_rows
from ..reading.pooling import gathered
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.pooled_rows import omission_rows
from ..tables.printed import VERDICTS, namer
from ..tables.sections import run_tables
from ..tables.several_runs import overview, run_labels, tables_of
from ..tables.summary import unread_lines
from ..tables.table import Table
from .templates import environment

LIMIT = 60 * 1024
"""Bytes of UTF-8. GitHub refuses comments of more than 65,536 characters."""
CUT = "\n*Cut at 60 KiB. The complete report is report.html.*\n"


def cell(text: str) -> str:
    """Return text escaped for a Markdown table: on one line, without active markup, links, HTML or mentions."""
    flat = " ".join(text.split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore inside a word is no markup, and escaping it would make labels unreadable in the source.
    quiet = re.sub(r"([\\`*|]|(?<!\w)_|_(?!\w)|(?<=\])[(\[])", r"\\\1", escaped)
    return quiet.replace("@", "@\u200b")


def table_lines(table: Table, escape: Callable[[str], str] = cell) -> list[str]:
    """Return the headers and the rows of a table as lines of Markdown."""
    rule = ["---:" if number in table.numeric else "---" for number in range(len(table.headers))]
    texts = [map(escape, table.headers), rule, *(map(escape, row) for row in table.rows)]
    return [f"| {' | '.join(line)} |" for line in texts]


def cut(text: str, note: str = CUT) -> str:
    """Return the text; if it is longer than ``LIMIT``, keep only as many whole lines as fit together with ``note``."""
    if len(text.encode()) <= LIMIT:
        return text
    room = LIMIT - len(note.encode())
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    return "".join(kept) + note


def markdown(folder: RunFolder) -> str:
    """Return the Markdown report of one run in at most ``LIMIT`` bytes: verdict, problems, tables, provenance."""
    return _rendered(
        title=str(folder.manifest.suite.get("name", "")),
        verdict_line=summary.verdict_line(folder),
        tables=run_tables(folder),
        problems=_problems(folder),
        stops=_stops(claim_rows(folder)),
        sources=[("Provenance", summary.provenance(folder), summary.reproduce(folder))],
    )


def markdown_of_several(folders: Sequence[RunFolder]) -> str:
    """Return the Markdown report of several runs, with their tables side by side."""
    named = list(zip(run_labels(folders), folders, strict=True))
    return _rendered(
        title=f"{len(folders)} runs",
        verdict_line="Each run has its own verdict.",
        tables=[overview(folders), *tables_of(folders)],
        problems=[f"{cell(name)}: {line}" for name, folder in named for line in _problems(folder)],
        stops=[f"{cell(name)}: {line}" for name, folder in named for line in _stops(claim_rows(folder))],
        sources=[
            (f"Provenance of {name}", summary.provenance(folder), summary.reproduce(folder)) for name, folder in named
        ],
    )


def _rendered(**parts: Any) -> str:
    own = environment(autoescape=False)
    own.filters |= {"cell": cell, "table_lines": table_lines}
    return cut(own.get_template("report.md.j2").render(**parts))


def _problems(folder: RunFolder) -> list[str]:
    claims = [
        f"**{VERDICTS.get(row.verdict, row.verdict)}** {cell(row.defense)}"
        f"{' (control: should be REFUTED)' if row.should_be_refuted else ''}: {cell(row.claim_text)}{_reason(row)}"
        for row in claim_rows(folder)
        if row.needs_attention
    ]
    failures = [
        f"**failed** {cell(f'{row.what}, on {row.where}')}: {cell(row.reason)}"
        for row in omission_rows(folder)
        if row.status == "failed"
    ]
    return [*claims, *failures, *(f"**cannot be read** {cell(line)}" for line in unread_lines(folder))]


def _reason(row: ClaimRow) -> str:
    return f"; {cell(row.record.reason)}" if row.record and row.record.reason else ""


def _stops(rows: Sequence[ClaimRow]) -> list[str]:
    """At which look each sequential audit stopped and why, those with the same words in one line."""
    name = namer(rows, controls=False)
    found = gathered(
        (row.record.stopped, f"{name(row)} ({row.claim_text})") for row in rows if row.record and row.record.stopped
    )
    return [cell(f"{'; '.join(audits)}: {words}") for words, audits in found.items()]
