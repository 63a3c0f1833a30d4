"""Write a run's gate result for CI: as JUnit XML, and in Markdown for the summary page of a job, failures first.

The JUnit file has a test case for the outcome and for each audited claim and compared metric. It uses only what the
schemas of Jenkins' xUnit, JUnit 5 and Ant have in common: at most one of ``failure`` and ``skipped`` per case, and
never ``error``, which one of them spells ``errors``. A case fails if and only if the exit code is not 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree

from ...suites.results.outcome import FAIL, INCOMPLETE, INCONCLUSIVE, OK, WORDS, row_exit_code
from ..formats.markdown import cell as escaped
from ..formats.markdown import cut, table_lines
from ..reading.claims import claim_rows
from ..reading.run_folder import RunFolder
from ..tables.printed import VERDICTS, claim_table
from ..tables.summary import claims_note
from .comparison import CellOutcome, PairedCell
from .gated_run import GatedRun, cell_table, change_words, claim_of_row, row_words

_CODES = {CellOutcome.PASS: OK, CellOutcome.FAIL: FAIL, CellOutcome.INCONCLUSIVE: INCONCLUSIVE}


@dataclass(frozen=True, kw_only=True)
class JUnitCase:
    """A JUnit test case with the exit code that it causes; ``skipped`` means that nothing was measured, so it must not
    count as passed.
    """

    group: str
    name: str
    exit_code: int
    message: str = ""
    text: str = ""
    skipped: bool = False


def junit(judged: GatedRun) -> str:
    """Return the JUnit XML document; the same run and baseline give the same text."""
    root = ElementTree.Element("testsuites")
    suites = {
        "gate": [_verdict(judged)],
        "claims": list(_claims(judged.folder)),
        "cells": list(_cells(judged)),
    }
    for number, (name, cases) in enumerate(suites.items()):
        _suite(root, number, name, cases, judged)
    # The order of elements and attributes is fixed, so the same run gives the same file.
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, number: int, name: str, cases: list[JUnitCase], judged: GatedRun) -> None:
    manifest = judged.folder.manifest
    failing = [case for case in cases if case.exit_code in judged.fail_on]
    # A problem that fail_on leaves out is shown as skipped, so that it stays visible without failing the job.
    skipped = [case for case in cases if case not in failing and (case.skipped or case.exit_code != OK)]
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=f"fedassay.{name}",
        package="fedassay",
        id=str(number),
        tests=str(len(cases)),
        failures=str(len(failing)),
        errors="0",
        skipped=str(len(skipped)),
        time="0",
        # Times of the run and not of this call: the same run must give the same file.
        timestamp=_moment(manifest.finished) or _moment(manifest.started) or "1970-01-01T00:00:00",
        hostname="localhost",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in (("run", manifest.name), ("command", manifest.command)):
        ElementTree.SubElement(properties, "property", name=key, value=_clean(value))
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", name=_clean(case.name), classname=_clean(f"fedassay.{name}.{case.group}"), time="0"
        )
        if case in failing or case in skipped:
            kind = "failure" if case in failing else "skipped"
            why = ElementTree.SubElement(element, kind, message=_clean(case.message))
            why.text = _clean(case.text)
            if case in failing:
                why.set("type", WORDS[case.exit_code])
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")


def _moment(text: str | None) -> str | None:
    """The time in UTC without a zone, as the schemas require; None for text that is not a time."""
    try:
        moment = datetime.fromisoformat(text or "")
        # A manifest's time without a zone is in UTC already.
        in_utc = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        return in_utc.isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _verdict(judged: GatedRun) -> JUnitCase:
    code = judged.outcome.exit_code
    # With exit code 0 there may be problems that fail_on leaves out; they are shown as skipped.
    shown = code or max((problem.exit_code for problem in judged.problems), default=OK)
    details = "\n".join(judged.outcome.details)
    return JUnitCase(group="run", name="verdict", exit_code=shown, message=judged.outcome.verdict_line, text=details)


def _claims(folder: RunFolder) -> Iterator[JUnitCase]:
    for row in folder.rows("audit", "evidence"):
        seed = "" if row.seed is None else f", seed {row.seed}"
        yield JUnitCase(
            group=row.federation,
            name=f"{row.defense}: {claim_of_row(folder, row)} [{row.attack}{seed}]",
            exit_code=row_exit_code(row),
            message=row_words(row),
            text=f"again: {folder.manifest.command}",
            skipped=row.status in ("skipped", "unavailable"),
        )
    judged = {(row.federation, row.defense, row.claim_id) for row in folder.rows("audit")}
    # A claim that was never audited is listed as skipped, because a missing case would look like a passed one.
    for stated in folder.claims:
        if stated.key not in judged:
            name = f"{stated.defense}: {stated.claim.describe()}"
            yield JUnitCase(
                group=stated.federation, name=name, exit_code=OK, message=VERDICTS["NOT_AUDITED"], skipped=True
            )


def _cells(judged: GatedRun) -> Iterator[JUnitCase]:
    found = judged.comparison
    if found is None:
        return
    for cell in found.cells:
        yield JUnitCase(
            group=cell.key.federation,
            name=str(cell.key),
            exit_code=_CODES[cell.outcome],
            message=_cell_message(cell),
            text=f"again: {judged.again}",
        )
    for words, names in (("in the baseline, not in this run", found.missing), ("not in the baseline", found.new)):
        for name in names:
            yield JUnitCase(
                group="unpaired", name=name, exit_code=INCOMPLETE, message=words, text=f"accept: {judged.accept}"
            )


def _cell_message(cell: PairedCell) -> str:
    why = f": {cell.change.why(cell.margin)}" if cell.outcome is CellOutcome.INCONCLUSIVE else ""
    return change_words(cell) + why


def _clean(text: str) -> str:
    """The text without characters that XML cannot represent."""
    return re.sub("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "", text)


_CUT = "\n*Cut at 60 KiB. `fedassay gate` prints everything.*\n"
_WORST_FIRST = ("FAIL", "INCONCLUSIVE", "PASS")


def step_summary(judged: GatedRun) -> str:
    """Return a summary for CI as Markdown, in at most 60 KiB of UTF-8: the verdict, problems, compared metrics (failing
    ones first) and claims.
    """
    manifest, found = judged.folder.manifest, judged.comparison
    claims = claim_rows(judged.folder)
    tables = [claim_table(claims, claims_note(claims, judged.folder.kinds))]
    if found is not None:
        # Sorted, because a long summary is cut at the end.
        tables.insert(0, cell_table(found, sorted(found.cells, key=lambda cell: _WORST_FIRST.index(cell.outcome))))
    lines = [
        f"## fedassay gate: {escaped(str(manifest.suite.get('name', '')))}",
        "",
        f"**{escaped(judged.outcome.verdict_line)}** (exit code {judged.outcome.exit_code})",
        "",
        *(f"- {escaped(line)}" for line in judged.outcome.details),
        "",
    ]
    for table in tables:
        if table.rows:
            lines += [f"### {escaped(table.title)}", "", *table_lines(table), "", escaped(table.note), ""]
    # A backquote in the command would end the code span, and a line break would end the line.
    lines += [f"Run again: `{' '.join(manifest.command.replace('`', '').split())}`", ""]
    return cut("\n".join(lines), _CUT)
