"""Judgement: claims and cells of a run in one verdict line, and the exit code that always agrees with it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...suites.config.margins import margins_with
from ...suites.config.source import ConfigError
from ...suites.results.gate import (
    EVERYTHING,
    FAIL,
    INCOMPLETE,
    INCONCLUSIVE,
    OK,
    PRECEDENCE,
    WORDS,
    Problem,
    failing,
    fine_line,
    gate_of,
    outcome,
    several,
)
from ...suites.results.gate import problems as problems_of
from ..reading.run_folder import RunFolder
from .baseline import Baseline, baseline_file
from .cells import family
from .comparison import Comparison, PairedCell, compare
from .paired import Outcome
from .words import change_words, gap_lines, note_lines, row_line, troubled_rows

_MANY = 40
"""Lines of a kind that are printed; the test report holds them all."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a run comes to, alone or against a baseline. ``fail_on``: exit codes that fail; others are only told."""

    folder: RunFolder
    comparison: Comparison | None
    problems: tuple[Problem, ...]
    fail_on: frozenset[int]
    fine: str
    again: str
    accept: str

    @property
    def exit_code(self) -> int:
        """Of the problems that are failed on."""
        return gate_of(self._failing, "").exit_code

    @property
    def verdict_line(self) -> str:
        """The word of the exit code first; what is not failed on stands behind the rest, with its own word."""
        line = gate_of(self._failing, self.fine if not self._let_be else "nothing that is failed on").verdict_line
        let_be = "; ".join(
            f"{WORDS[code]}: {'; '.join(one.text for one in self._let_be if one.exit_code == code)}"
            for code in PRECEDENCE
            if any(one.exit_code == code for one in self._let_be)
        )
        return f"{line} (not failed on: {let_be})" if let_be else line

    @property
    def _failing(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.exit_code in self.fail_on]

    @property
    def _let_be(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.exit_code not in self.fail_on]

    def raise_for_status(self) -> None:
        """Raise RuntimeError with the verdict line and what is behind it, unless the exit code is 0."""
        if self.exit_code != OK:
            raise RuntimeError("\n".join([self.verdict_line, *self.details()]))

    def details(self) -> list[str]:
        """A line for whatever keeps the run from being fine, the worst first, each with what it was and is; the command
        that runs it again, the one that accepts it.
        """
        found, rows = self.comparison, troubled_rows(self.folder)
        worse = [] if found is None else [f"worse  {change_words(cell)}" for cell in found.having(Outcome.FAIL)]
        refuted = [row_line(self.folder, row) for row in rows if outcome(row) == FAIL]
        others = [row_line(self.folder, row) for row in rows if outcome(row) != FAIL]
        again = [f"again  {self.again}"] if worse or refuted else []
        lines = [*_some(worse), *_some(refuted), *again, *_some(others)]
        if found is None:
            return lines
        gaps = gap_lines(found)
        accepting = [f"accept {self.accept}"] if gaps else []
        unclear = found.having(Outcome.INCONCLUSIVE)
        told = [f"open   {change_words(cell)}: {cell.change.why(cell.margin)}" for cell in unclear]
        return [*lines, *_some(gaps), *accepting, *_some(told), *note_lines(found)]


def judge(
    folder: RunFolder,
    baseline: str | Path | None = None,
    *,
    margins: Mapping[str, float] | None = None,
    fail_on: Iterable[str] = EVERYTHING,
) -> Judgement:
    """The claims of a run, and its cells against a baseline (a file or a run's folder) if one is named.

    A baseline that is not there is no crash but INCOMPLETE: it is how every project begins.

    Raises:
        ConfigError: a baseline that cannot be read, a bad margin, an unknown word in ``fail_on``.
    """
    codes, comparison, problems = failing(fail_on), None, _of_the_run(folder)
    try:
        wished = margins_with({**folder.margins, **(margins or {})})
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if baseline is not None:
        try:
            comparison = compare(Baseline.read(baseline), Baseline.of(folder), margins=wished)
        except FileNotFoundError as error:
            problems.append(Problem(exit_code=INCOMPLETE, text=f"{error}; {accept_command(folder, baseline)} makes it"))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    fine = fine_line(folder.records)
    if comparison is not None:
        problems += _of_the_comparison(comparison)
        fine += f"; none of {len(comparison.cells)} cells worse than the baseline by its margin"
    return Judgement(
        folder=folder,
        comparison=comparison,
        problems=tuple(sorted(problems, key=lambda problem: PRECEDENCE.index(problem.exit_code))),
        fail_on=codes,
        fine=fine,
        again=folder.manifest.command,
        accept=accept_command(folder, baseline),
    )


def accept_command(folder: RunFolder, baseline: str | Path | None) -> str:
    """What makes this run the baseline."""
    is_file = baseline is not None and not (Path(baseline) / "manifest.json").is_file()
    place = str(baseline_file(baseline)) if baseline is not None and is_file else "baselines/main.json"
    return f"fedassay gate {shlex.quote(str(folder.path))} --baseline {shlex.quote(place)} --accept"


def accept(folder: RunFolder, baseline: str | Path) -> Path:
    """Makes this run the baseline; returns the file.

    Raises:
        ConfigError: a run with missing or failed cells, or with none to compare; one that breaks a claim, or whose
            audits see nothing; a place that holds something else.
    """
    holes = [problem.text for problem in _of_the_run(folder) if problem.exit_code in (FAIL, INCOMPLETE)]
    if not holes and not family(folder.records):
        holes.append("no attack and no utility was measured")
    if holes:
        raise ConfigError(f"{folder.path} cannot be a baseline: {'; '.join(holes)}")
    return Baseline.of(folder).write(baseline)


def _of_the_run(folder: RunFolder) -> list[Problem]:
    """What needs no baseline: claims, controls, failures, and rows that are not there."""
    return [*_holes(folder), *problems_of(folder.records)]


def _holes(folder: RunFolder) -> list[Problem]:
    texts = [
        (not folder.records, "the run holds no row"),
        (folder.missing > 0, f"{folder.missing} cells missing"),
        (bool(folder.skipped), f"{len(folder.skipped)} rows that cannot be read"),
        (bool(folder.changed), f"changed since the run was finished: {', '.join(folder.changed)}"),
    ]
    return [Problem(exit_code=INCOMPLETE, text=text) for found, text in texts if found]


def _of_the_comparison(found: Comparison) -> list[Problem]:
    many = len(found.cells)
    worse, open_ = ([_named(cell) for cell in found.having(one)] for one in (Outcome.FAIL, Outcome.INCONCLUSIVE))
    texts = [
        (INCOMPLETE, not many, f"no cell in common with the baseline {found.base.run.name}"),
        (INCOMPLETE, bool(found.obstacles), f"not measured as the baseline was: {several(found.obstacles)}"),
        (
            INCOMPLETE,
            bool(found.missing),
            f"{len(found.missing)} cells of the baseline missing: {several(found.missing)}",
        ),
        (INCOMPLETE, bool(found.new), f"{len(found.new)} cells not in the baseline: {several(found.new)}"),
        (FAIL, bool(worse), f"{len(worse)} of {many} cells worse than the baseline: {several(worse)}"),
        (
            INCONCLUSIVE,
            bool(open_),
            f"{len(open_)} of {many} cells that may be worse than the baseline by their margin: {several(open_)}",
        ),
    ]
    return [Problem(exit_code=code, text=text) for code, there, text in texts if there]


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MANY
    return [*lines[:_MANY], f"       and {more} more"] if more > 0 else list(lines)


def _named(cell: PairedCell) -> str:
    return str(cell.key)
