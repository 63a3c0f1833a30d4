"""What the commands report, schema and doctor --calibrate print: files of runs, schemas of what they hold, errors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..suites.config.source import ConfigError
from .console import say


def print_report(folders: Sequence[Path], wanted: Mapping[str, Path | None]) -> list[str]:
    """Writes the report of one run, or of several side by side; returns what there is to say.

    ``wanted``: format -> file. Without a file, one run gets its pages into its own folder. Raises ConfigError where a
    run cannot be read or a file not be made.
    """
    from ..reports.formats.terminal import unread_words
    from ..reports.formats.write import read_runs, write_files

    asked = {name: path for name, path in wanted.items() if path is not None}
    if not asked and len(folders) > 1:
        raise ConfigError(f"several runs need a file to write to: {', '.join(f'--{name} FILE' for name in wanted)}")
    try:
        runs = read_runs(folders)
        own = {"html": runs[0].path / "report.html", "md": runs[0].path / "report.md"}
        written = write_files(runs, asked or own)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    unread = [line if len(runs) == 1 else f"{line} ({run.path})" for run in runs for line in unread_words(run)]
    # What went into a pipe cannot be opened, and may be the very one that this is printed into.
    return [*unread, *(f"open   {path}" for path in (written if asked else written[:1]) if path.is_file())]


def print_schema(kind: str) -> str:
    """The JSON Schema of this kind. Raises ConfigError for a kind that there is not."""
    from ..suites.results.schemas import schema_of

    try:
        return json.dumps(schema_of(kind), indent=2, ensure_ascii=False)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def print_calibration(repeats: int, seed: int) -> int:
    """Repeats every estimator on mechanisms of known privacy, prints how often each erred; returns the exit code."""
    from ..audit.calibration.calibration import calibrate
    from ..audit.estimators.catalogue import estimators
    from ..reports.tables.calibration import calibration_outcome, degenerate_table, error_table
    from .progress import print_table, progress

    watching, found = progress(), estimators().values()
    watching.start(len(found), 0)
    try:
        rows = list(calibrate(repeats=repeats, seed=seed, only=found, done=lambda name: watching.advance([name], [])))
    finally:
        watching.close()
    for table in (error_table(rows), degenerate_table(rows)):
        print_table(table)
    gate = calibration_outcome(rows)
    say(f"gate   {gate.verdict_line} (exit code {gate.exit_code})")
    return gate.exit_code
