"""Produce the output of the commands ``check``, ``report``, ``site`` and ``schema``."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..audit.claim import Claim
from ..suites.config.source import ConfigError, apply_override, config_errors
from ..suites.results.outcome import Outcome
from .console import print_lines


@dataclass(frozen=True, kw_only=True)
class ChosenTable:
    """The columns and metrics of the one LaTeX table that the command line asked for; empty for all tables."""

    columns: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    label: str = ""


def print_report(
    folders: Sequence[Path],
    wanted: Mapping[str, Path | None],
    figures: Path | None = None,
    table: ChosenTable | None = None,
    pack: Path | None = None,
) -> list[str]:
    """Write the report of one run, or a common report of several; return the lines to print.

    ``wanted`` maps a format to a file; ``figures`` is a folder for the figures, ``pack`` one for the evidence pack of a
    single run. If none is given, the pages of a single run go into its own folder. Raises ConfigError if a run cannot
    be read or a file cannot be written.
    """
    from ..reports.formats.terminal import unread_words
    from ..reports.formats.write import read_runs, write_chosen_table, write_figures, write_files

    if pack is not None:
        from ..reports.pack.statement import write_pack

    requested = {name: path for name, path in wanted.items() if path is not None}
    if pack is not None and len(folders) > 1:
        raise ConfigError(f"an evidence pack is about one run, got {len(folders)}: give one run folder with --pack")
    if not requested and figures is None and len(folders) > 1:
        raise ConfigError(
            "a report of several runs must be written to a file that you name: give one of "
            f"{', '.join(f'--{name} FILE' for name in wanted)}"
        )
    one = table is not None and bool(table.columns or table.metrics)
    latex = requested.get("latex")
    if table is not None and (one or table.label) and (latex is None or not one):
        raise ConfigError(
            "--column, --metric and --label choose one LaTeX table: give --latex FILE, and --column or --metric"
        )
    with config_errors():
        runs = read_runs(folders)
        own = {"html": runs[0].path / "report.html", "md": runs[0].path / "report.md"}
        # First, because an unknown column must leave every old file unchanged.
        chosen = [write_chosen_table(runs, latex, **asdict(table))] if one and latex and table else []
        others = {name: path for name, path in requested.items() if path not in chosen}
        written = [*chosen, *write_files(runs, others if requested or figures or pack else own)]
        drawn = [] if figures is None else write_figures(runs, figures)
        packed = [] if pack is None else write_pack(runs[0], pack)
    unread = [line if len(runs) == 1 else f"{line} ({run.path})" for run in runs for line in unread_words(run)]
    # A pipe cannot be opened later, and it may be the one that these lines are printed into.
    return [
        *unread,
        *(f"open   {path}" for path in (written if requested else written[:1]) if path.is_file()),
        *([f"open   {figures} ({len(drawn)} files of figures)"] if drawn else []),
        *([f"open   {packed[0]} (evidence pack, {len(packed)} files in {pack})"] if packed else []),
    ]


def print_site(folders: Sequence[Path], place: Path) -> list[str]:
    """Write a static site over the runs in these folders; return the lines to print.

    Raises ConfigError if a run cannot be read or a file cannot be written.
    """
    from ..reports.formats.terminal import unread_words
    from ..reports.formats.write import read_runs, write_site

    with config_errors():
        runs = read_runs(folders)
        files = write_site(runs, place)
    unread = [f"{line} ({run.path})" for run in runs for line in unread_words(run)]
    return [*unread, f"open   {files[0]} ({len(files)} files)"]


def write_page(path: Path, target: str, claim: Claim | None, gate: Outcome, *, as_json: bool, **shown: Any) -> None:
    """Write the page of an audit or of a watched run; print the page's path unless JSON was printed. ``shown``:
    arguments of ``html_of_finding``.

    Raises ConfigError for a file that cannot be written.
    """
    from ..reports.formats.page import html_of_finding
    from ..reports.formats.write import check_targets, write_whole

    with config_errors():
        check_targets([path], [])
        write_whole(path, html_of_finding(target, claim, gate.verdict_line, code=gate.exit_code, **shown))
    if not as_json:
        print_lines(f"open   {path}")


def print_schema(kind: str) -> str:
    """Return the JSON Schema of result rows, claims or suite files; raise ConfigError for an unknown kind of file."""
    from ..suites.results.schemas import schema_of

    with config_errors():
        return json.dumps(schema_of(kind), indent=2, ensure_ascii=False)


OK, FAULT, NOT_FINISHED = 0, 10, 11


def check_lines(
    part: str, *, kind: str | None, options: Sequence[str], limit: float, as_json: bool
) -> tuple[Iterator[str], Callable[[], int]]:
    """Return an iterator over the printed lines of a part's checks, each of which appears as soon as its check has
    ended, and a function that returns the exit code after them.

    Raises:
        ConfigError: for a part that cannot be found, an option that is no ``key=value``, or a limit that is not > 0.
    """
    from ..suites.conformance.conformance import check_part, kind_of

    if not limit > 0:
        raise ConfigError(f"--limit must be > 0, got {limit:g}")
    given: dict[str, Any] = {}
    for assignment in options:
        apply_override(given, assignment)
    found = kind or kind_of(part)
    outcomes, passed = check_part(part, kind=found, options=given, limit=limit), list[bool | None]()

    def lines() -> Iterator[str]:
        shown = []
        for outcome in outcomes:
            passed.append(outcome.passed)
            shown.append({"check": outcome.name, "passed": outcome.passed, "remark": outcome.remark})
            if not as_json:
                yield outcome.line
        if as_json:
            yield json.dumps({"part": part, "kind": found, "checks": shown}, indent=1)
        else:
            number, late = passed.count(False), passed.count(None)
            words = f"{number or 'no'} fault{'' if number == 1 else 's'}" + (f", {late} not finished" if late else "")
            yield f"{part} ({found}): {len(passed)} checks, {words}"

    return lines(), lambda: FAULT if False in passed else NOT_FINISHED if None in passed else OK
