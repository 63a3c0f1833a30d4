"""Give the verdict on a run's claims, compare its metrics with a baseline, and explain the outcome in lines of text."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...audit.wording import counted
from ...suites.config.source import ConfigError
from ...suites.config.tables.margins import margins_with
from ...suites.results.outcome import (
    EVERYTHING,
    FAIL,
    INCOMPLETE,
    INCONCLUSIVE,
    PRECEDENCE,
    WORDS,
    Outcome,
    Problem,
    failing_codes,
    fine_line,
    listed,
    outcome_of,
    row_exit_code,
)
from ...suites.results.outcome import problems as problems_of
from ...suites.results.rows import skipped_counts
from ...suites.results.weak_test import claimed_epsilons
from ..claim_tables.coverage import coverage_lines
from ..reading.run_folder import RunFolder
from ..tables.unread import unread_lines
from .baseline import Baseline, baseline_file
from .cells import family
from .comparison import Comparison, compare_runs
from .paired import CellOutcome
from .words import change_words, gap_lines, note_lines, rounds_lines, row_line, troubled_rows

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
) -> GatedRun:
    """Give the verdict on a run's claims; if ``baseline`` (a baseline file or a run's folder) is given, also compare
    the run's metrics with it.

    A baseline that does not exist makes the run INCOMPLETE instead of raising: every project starts without one.

    Raises:
        ConfigError: a baseline that cannot be read, a bad margin, an unknown word in ``fail_on``.
    """
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
    fine = fine_line(folder.records, claimed_epsilons(folder.claims))
    if comparison is not None:
        problems += _of_the_comparison(comparison)
        fine += f"; none of {counted(len(comparison.cells), 'cell')} worse than the baseline by its margin"
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
    found = outcome_of(counted, "no problem of the kinds that fail_on names" if ignored else fine)
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
        holes.append("no attack and no utility was measured")
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
        (INCOMPLETE, not found.cells, f"no cell in common with the baseline {found.base.run.name}"),
        (INCOMPLETE, found.obstacles, f"not measured as the baseline was: {listed(found.obstacles)}"),
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
            f"{len(unclear)} of {many} that may be worse than the baseline by their margin: {listed(unclear)}",
        ),
    ]
    return [Problem(exit_code=code, text=text) for code, there, text in texts if there]


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MANY
    return [*lines[:_MANY], f"       and {more} more"] if more > 0 else list(lines)
