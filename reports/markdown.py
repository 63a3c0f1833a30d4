"""The report as markdown for a pull request: failures first, cut before a comment grows too long."""

from collections.abc import Sequence
from dataclasses import replace

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import summary
from .claims import ClaimRow, claim_rows
from .escaped import cell, cut
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
        alarms=[*_claim_alarms(claims), *_failures(omissions)],
        tables=_tables(folder, claims, omissions),
        provenance=summary.provenance(folder),
        reproduce=summary.reproduce(folder),
    )
    return cut(text)


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
        f"{' (a control: it must be REFUTED)' if row.must_fall else ''}: {cell(row.says)}{_reason(row)}"
        for row in rows
        if row.alarming
    ]


def _reason(row: ClaimRow) -> str:
    return f"; {cell(row.record.reason)}" if row.record and row.record.reason else ""


def _failures(rows: Sequence[OmissionRow]) -> list[str]:
    return [f"**failed** {cell(_target(row))}: {cell(row.reason)}" for row in rows if row.status == "failed"]


def _target(row: OmissionRow) -> str:
    return f"{row.attack}, {metric(row.metric).name}, on {row.where}"
