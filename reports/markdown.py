"""The report as markdown for a pull request: failures first, cut before a comment grows too long."""

import re
from collections.abc import Sequence
from dataclasses import replace

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import summary
from .claims import ClaimRow, claim_rows
from .grid import attack_grids
from .membership_table import membership_table
from .mutants import mutant_rows, mutant_table
from .numerals import metric
from .page import TEMPLATES
from .papers import paper_table
from .printed import VERDICTS, attack_table, claim_table, omission_table, utility_table
from .reconstruction import reconstruction_rows, reconstruction_table
from .run_folder import RunFolder
from .table import Table
from .tables import OmissionRow, attack_rows, omission_rows, utility_rows
from .unread import unread_lines

LIMIT = 60 * 1024
"""Bytes of UTF-8. GitHub refuses comments of more than 65,536 characters."""
CUT = "\n*Cut here at 60 KiB: the whole of it is in report.html.*\n"


def markdown(folder: RunFolder) -> str:
    """At most ``LIMIT`` bytes: verdict, what needs a look, claims, attacks, utility, omissions, provenance."""
    claims, omissions = claim_rows(folder), omission_rows(folder)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell
    text = environment.get_template("report.md.j2").render(
        suite=str(folder.manifest.suite.get("name", "")),
        verdict_line=summary.verdict_line(folder),
        alarms=[*_claim_alarms(claims), *_failures(omissions), *_unread(folder)],
        tables=_tables(folder, claims, omissions),
        provenance=summary.provenance(folder),
        reproduce=summary.reproduce(folder),
    )
    return _cut(text)


def cell(text: str) -> str:
    """Text that stays text inside a markdown table: on one line, without markup, links or HTML of its own."""
    flat = " ".join(text.split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    quiet = re.sub(r"([\\`*|]|(?<!\w)_|_(?!\w)|(?<=\])[(\[])", r"\\\1", escaped)
    return quiet.replace("@", "@\u200b")


def _tables(folder: RunFolder, claims: Sequence[ClaimRow], omissions: Sequence[OmissionRow]) -> list[Table]:
    attacks = [attack_table(grid, grid.lines) for grid in attack_grids(attack_rows(folder))]
    return [
        replace(claim_table(claims), note=summary.claims_note(claims)),
        paper_table(claims),
        mutant_table(mutant_rows(folder)),
        reconstruction_table(reconstruction_rows(folder)),
        membership_table(folder),
        *(replace(table, note=summary.POOLING_NOTE) for table in attacks),
        utility_table(utility_rows(folder)),
        omission_table(omissions),
    ]


def _claim_alarms(rows: Sequence[ClaimRow]) -> list[str]:
    return [
        f"**{VERDICTS.get(row.verdict, row.verdict)}** {cell(row.defense)}"
        f"{' (a control: it must be REFUTED)' if row.control else ''}: {cell(row.says)}{_reason(row)}"
        for row in rows
        if row.alarming
    ]


def _reason(row: ClaimRow) -> str:
    return f"; {cell(row.record.reason)}" if row.record and row.record.reason else ""


def _failures(rows: Sequence[OmissionRow]) -> list[str]:
    return [f"**failed** {cell(_target(row))}: {cell(row.reason)}" for row in rows if row.status == "failed"]


def _unread(folder: RunFolder) -> list[str]:
    return [f"**cannot be read** {cell(line)}" for line in unread_lines(folder.skipped)]


def _target(row: OmissionRow) -> str:
    return f"{row.attack}, {metric(row.metric).name}, on {row.where}"


def _cut(text: str) -> str:
    """The text, or as many whole lines of it as leave room for the note that it was cut."""
    if len(text.encode()) <= LIMIT:
        return text
    room = LIMIT - len(CUT.encode())
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    return "".join(kept) + CUT
