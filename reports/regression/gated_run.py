"""Give the verdict on a run's claims, compare its metrics with a baseline, and explain the outcome in lines of text."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...audit.wording import counted, listed
from ...suites.config.source import ConfigError
from ...suites.config.tables.margins import margins_with
from ...suites.results.outcome import (
    EVERYTHING,
    FAIL,
    INCOMPLETE,
    INCONCLUSIVE,
    OK,
    PRECEDENCE,
    WORDS,
    Outcome,
    Problem,
    accepting_weak,
    failing_codes,
    fine_line,
    outcome_of,
    row_exit_code,
)
from ...suites.results.outcome import problems as problems_of
from ...suites.results.record import Record
from ...suites.results.rows import skipped_counts
from ..reading.run_folder import RunFolder
from ..tables.numerals import NOTHING, lower_bound, metric, metric_value, metric_words, optional
from ..tables.stated import coverage_lines
from ..tables.summary import unread_lines
from ..tables.table import Right, Table, tabulate
from .baseline import Baseline, CellKey, baseline_file, family
from .comparison import ALPHA, CellOutcome, Change, Comparison, PairedCell, compare_runs

ENDS = f"each end one-sided at {100 * (1 - ALPHA):g} %"


def change_words(cell: PairedCell) -> str:
    """Return one line about a compared metric: its name, both values, the interval of the change, p and the margin."""
    key, change = cell.key, cell.change
    before, after = (metric_value(key.metric, value) for value in (change.base, change.new))
    seeds = f"{change.seeds} seed{'s' * (change.seeds > 1)}"
    return (
        f"{key.federation}/{key.defense}/{_attack(key)} {metric_words(key.metric, cell.direction)}: "
        f"{before} in the baseline, {after} now, worse by {_worse(key.metric, change)} over {seeds}, "
        f"p {change.p_family:.2g} within its family of tests, margin {cell.margin:g}"
    )


def cell_table(found: Comparison, cells: Sequence[PairedCell]) -> Table:
    """Return a table of metrics of both runs with their paired differences."""
    return tabulate(
        f"{found.base.run.name} (base) and {found.run.run.name} (new), paired by seed",
        cells,
        {
            "federation": lambda cell: cell.key.federation,
            "defense": lambda cell: cell.key.defense,
            "attack": lambda cell: _attack(cell.key),
            "metric": lambda cell: metric_words(cell.key.metric, cell.direction),
            Right("base"): lambda cell: metric_value(cell.key.metric, cell.change.base),
            Right("new"): lambda cell: metric_value(cell.key.metric, cell.change.new),
            Right("worse by"): lambda cell: _worse(cell.key.metric, cell.change),
            Right("margin"): lambda cell: f"{cell.margin:g}",
            Right("p (Holm)"): lambda cell: f"{cell.change.p_family:.2g}" if cell.reached else NOTHING,
            Right("r"): lambda cell: optional(cell.change.correlation, "{:.2f}".format).replace("-", "−"),
            Right("seeds"): lambda cell: str(cell.change.seeds),
            "outcome": lambda cell: cell.outcome.value,
        },
        note=f"{correlation_words(found)}. Values are means over seeds of each seed's median. Worse by: positive is "
        f"worse, {ENDS}. r: correlation of the two runs over seeds. FAIL: significant after Holm's correction and more "
        "than half the margin. PASS: the upper end is below the margin.",
    )


def _attack(key: CellKey) -> str:
    return f"{key.attack} ({key.observer})" if key.observer else key.attack


def correlation_words(found: Comparison) -> str:
    """Return a line that states the correlation between the paired runs and the number of tested metrics."""
    many = sum(cell.change.correlation is not None for cell in found.cells)
    words = "pairing correlation unknown: no cell varies over at least three seeds in both runs"
    if found.correlation is not None:
        words = f"pairing correlation {found.correlation:.2f} (mean of {many} cells)".replace("-", "−")
    return f"{words}; {found.family} of {len(found.cells)} cells are tested and share alpha"


def troubled_rows(folder: RunFolder) -> list[Record]:
    """Return the result rows that cause an exit code other than 0, the most severe code first."""
    found = [row for row in folder.rows() if row_exit_code(row) != OK]
    return sorted(found, key=lambda row: PRECEDENCE.index(row_exit_code(row)))


def row_line(folder: RunFolder, row: Record) -> str:
    """Return one line about a result row that causes a problem: the claim or the attack, and the result."""
    seed = "" if row.seed is None else f" seed {row.seed}"
    what = claim_of_row(folder, row) if row.role in ("audit", "evidence", "check") else f"{row.attack}{seed}"
    # The first word lets a CI log be searched for one kind of problem.
    kind = "failed" if row.status == "failed" else "claim"
    return f"{kind:<6} {row.federation}/{row.defense}: {what}: {row_words(row)}"


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
    """Return one line for each reason why a run and its baseline are not fully comparable."""
    kinds = (("change", found.obstacles), ("lacks", found.missing), ("new", found.new))
    return [f"{kind:<6} {text}" for kind, texts in kinds for text in texts]


def note_lines(found: Comparison) -> list[str]:
    """Return one line for each difference between two runs that does not affect their comparison."""
    return [f"note   {text}" for text in found.notes]


def rounds_lines(folder: RunFolder) -> list[str]:
    """Return one line for each claim that covers fewer rounds than its federation runs."""
    rows = (row for row in folder.claims if (folder.rounds_of(row.federation) or 0) > row.claim.rounds)
    return [
        f"note   {row.federation}/{row.defense}: the claim covers {row.claim.rounds} of the "
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
            cell.key._asdict()
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


_MANY = 40
"""Printed lines of one kind at most; the JUnit file holds all of them."""


@dataclass(frozen=True, kw_only=True)
class GatedRun:
    """A run and its outcome, with the comparison with a baseline if one was named.

    ``problems``: all of them, the worst first. ``fail_on``: the exit codes that count; problems with another code are
    printed and do not change the outcome. ``again``: the command that repeats the run. ``accept``: the command that
    makes it the baseline.
    """

    folder: RunFolder
    outcome: Outcome
    comparison: Comparison | None
    problems: tuple[Problem, ...]
    fail_on: frozenset[int]
    again: str
    accept: str


def judge_folder(
    folder: RunFolder,
    baseline: str | Path | None = None,
    *,
    margins: Mapping[str, float] | None = None,
    fail_on: Iterable[str] = EVERYTHING,
    accept_weak: bool = False,
) -> GatedRun:
    """Give the verdict on a run's claims; if ``baseline`` (a baseline file or a run's folder) is given, also compare
    the run's metrics with it.

    A baseline that does not exist makes the run INCOMPLETE instead of raising: every project starts without one.
    ``accept_weak``: claims that are UNDERPOWERED only because their test is weak count as not refuted, also where the
    suite does not say so.

    Raises:
        ConfigError: a baseline that cannot be read, a bad margin, an unknown word in ``fail_on``.
    """
    if accept_weak:
        folder = replace(folder, records=tuple(accepting_weak(folder.records)))
    codes, comparison, problems = failing_codes(fail_on), None, _of_the_run(folder)
    try:
        # The caller's margins come last: the command line overrides the suite.
        allowed = margins_with({**folder.margins, **(margins or {})})
    except ValueError as error:
        raise ConfigError(str(error)) from error
    accepting = accept_command(folder, baseline)
    if baseline is not None:
        try:
            comparison = compare_runs(Baseline.read(baseline), Baseline.of(folder), margins=allowed)
        except FileNotFoundError as error:
            problems.append(Problem(exit_code=INCOMPLETE, text=f"{error}; {accepting} creates it"))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    fine = fine_line(folder.records)
    if comparison is not None:
        problems += _of_the_comparison(comparison)
        fine += f"; none of {counted(len(comparison.cells), 'cell')} is worse than the baseline by its margin"
    # The sort is stable: problems of one exit code keep the order in which they were found.
    problems.sort(key=lambda problem: PRECEDENCE.index(problem.exit_code))
    return GatedRun(
        folder=folder,
        outcome=_outcome(problems, codes, fine, _details(folder, comparison, accepting)),
        comparison=comparison,
        problems=tuple(problems),
        fail_on=codes,
        again=folder.manifest.command,
        accept=accepting,
    )


def _outcome(problems: Sequence[Problem], codes: frozenset[int], fine: str, details: Sequence[str]) -> Outcome:
    """The line starts with the word of the exit code; problems that ``fail_on`` leaves out follow in parentheses."""
    counted = [problem for problem in problems if problem.exit_code in codes]
    ignored = [problem for problem in problems if problem.exit_code not in codes]
    found = outcome_of(counted, "no problem of the kinds in fail_on" if ignored else fine)
    aside = "; ".join(
        f"{WORDS[code]}: {'; '.join(one.text for one in ignored if one.exit_code == code)}"
        for code in PRECEDENCE
        if any(one.exit_code == code for one in ignored)
    )
    line = f"{found.verdict_line} (ignored by fail_on: {aside})" if aside else found.verdict_line
    return Outcome(verdict_line=line, exit_code=found.exit_code, details=tuple(details))


def _details(folder: RunFolder, found: Comparison | None, accepting: str) -> list[str]:
    """One line per problem, the worst first, with the commands that run again and that accept the run as baseline."""
    rows = troubled_rows(folder)
    worse = [] if found is None else [f"worse  {change_words(cell)}" for cell in found.having(CellOutcome.FAIL)]
    refuted = [row_line(folder, row) for row in rows if row_exit_code(row) == FAIL]
    others = [row_line(folder, row) for row in rows if row_exit_code(row) != FAIL]
    again = [f"again  {folder.manifest.command}"] if worse or refuted else []
    lines = [*_first(worse), *_first(refuted), *again, *_first(others)]
    # The verdict rests on the result rows alone, so that lost data files are listed and do not change it.
    lines += _first([f"unread {line}" for line in unread_lines(folder)])
    lines += _first([*rounds_lines(folder), *coverage_lines(folder)])
    if found is None:
        return lines
    gaps = gap_lines(found)
    accept_line = [f"accept {accepting}"] if gaps else []
    unclear = [
        f"open   {change_words(cell)}: {cell.change.why(cell.margin)}"
        for cell in found.having(CellOutcome.INCONCLUSIVE)
    ]
    return [*lines, *_first(gaps), *accept_line, *_first(unclear), *note_lines(found)]


def accept_command(folder: RunFolder, baseline: str | Path | None) -> str:
    """Return the shell command that makes this run the baseline."""
    # A run's folder cannot be overwritten as a baseline, so a path in the usual place is proposed instead.
    is_file = baseline is not None and not (Path(baseline) / "manifest.json").is_file()
    place = str(baseline_file(baseline)) if baseline is not None and is_file else "baselines/main.json"
    return f"fedassay gate {shlex.quote(str(folder.path))} --baseline {shlex.quote(place)} --accept"


def accept(folder: RunFolder, baseline: str | Path) -> Path:
    """Write this run as the baseline and return the path of the file.

    Raises:
        ConfigError: a run with missing or failed cells or without anything to compare; a run in which a claim is
            refuted or a control is not; a path that holds something other than a baseline.
    """
    # An inconclusive claim may enter a baseline: the comparison concerns the cells, and the claims are judged anew.
    holes = [problem.text for problem in _of_the_run(folder) if problem.exit_code in (FAIL, INCOMPLETE)]
    if not holes and not family(folder.records):
        holes.append("the run measured neither an attack nor utility")
    if holes:
        raise ConfigError(f"{folder.path} cannot be a baseline: {'; '.join(holes)}")
    return Baseline.of(folder).write(baseline)


def _of_the_run(folder: RunFolder) -> list[Problem]:
    """Problems that need no baseline: claims, controls, failures, missing rows."""
    # Without the first problem a run that planned nothing would end as OK.
    gaps = ["the run holds no row"] if not folder.records else []
    gaps += [folder.without_gate] if folder.without_gate else []
    return [Problem(exit_code=INCOMPLETE, text=gap) for gap in gaps] + problems_of(
        folder.records, missing=folder.missing, changed=folder.changed, **skipped_counts(folder.skipped)
    )


def _of_the_comparison(found: Comparison) -> list[Problem]:
    many = counted(len(found.cells), "cell")
    worse, unclear = (
        [str(cell.key) for cell in found.having(one)] for one in (CellOutcome.FAIL, CellOutcome.INCONCLUSIVE)
    )
    texts = [
        (INCOMPLETE, not found.cells, f"the run has no cell in common with the baseline {found.base.run.name}"),
        (INCOMPLETE, found.obstacles, f"the run was not measured as the baseline was: {listed(found.obstacles)}"),
        (
            INCOMPLETE,
            found.missing,
            f"{counted(len(found.missing), 'cell')} of the baseline missing: {listed(found.missing)}",
        ),
        (INCOMPLETE, found.new, f"{counted(len(found.new), 'cell')} not in the baseline: {listed(found.new)}"),
        (FAIL, worse, f"{len(worse)} of {many} worse than the baseline: {listed(worse)}"),
        (
            INCONCLUSIVE,
            unclear,
            f"{len(unclear)} of {many} may be worse than the baseline by more than their margin: {listed(unclear)}",
        ),
    ]
    return [Problem(exit_code=code, text=text) for code, there, text in texts if there]


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MANY
    return [*lines[:_MANY], f"       and {more} more"] if more > 0 else list(lines)
