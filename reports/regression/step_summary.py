"""Write the result of ``fedassay gate`` in Markdown for the summary page of a CI job, failures first."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..formats.escaped import cell as escaped
from ..formats.escaped import cut
from ..reading.claims import claim_rows
from ..tables.printed import claim_table
from ..tables.summary import claims_note
from ..tables.table import Table
from .gated_run import GatedRun
from .words import cell_table

_CUT = "\n*Cut at 60 KiB. `fedassay gate` prints everything.*\n"
_WORST_FIRST = ("FAIL", "INCONCLUSIVE", "PASS")


def step_summary(judged: GatedRun) -> str:
    """Return the verdict, problems, compared metrics (failing ones first) and claims as Markdown, in at most 60 KiB of
    UTF-8.
    """
    manifest = judged.folder.manifest
    lines = [
        f"## fedassay gate: {escaped(str(manifest.suite.get('name', '')))}",
        "",
        f"**{escaped(judged.outcome.verdict_line)}** (exit code {judged.outcome.exit_code})",
        "",
        *(f"- {escaped(line)}" for line in judged.outcome.details),
        "",
    ]
    if judged.comparison is not None:
        table = cell_table(judged.comparison)
        # Sorted, because a long summary is cut at the end.
        worst = sorted(table.rows, key=lambda row: _WORST_FIRST.index(row[-1]))
        lines += _table(replace(table, rows=tuple(worst)))
    claims = claim_rows(judged.folder)
    lines += _table(replace(claim_table(claims), note=claims_note(claims, judged.folder.kinds)))
    # A backquote in the command would end the code span, and a line break would end the line.
    lines += [f"Run again: `{' '.join(manifest.command.replace('`', '').split())}`", ""]
    return cut("\n".join(lines), _CUT)


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    yield from (f"### {escaped(table.title)}", "")
    yield _row(table.headers)
    yield "|" + "|".join("---:" if number in table.numeric else "---" for number in range(len(table.headers))) + "|"
    yield from (_row(row) for row in table.rows)
    yield from ("", escaped(table.note), "")


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, texts))} |"
