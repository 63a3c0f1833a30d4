"""Define the commands ``compare``, which compares two runs, and ``gate``, which gives a run's verdict."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import print_lines
from .errors import reported_errors

if TYPE_CHECKING:
    from ..reports.regression.gated_run import GatedRun

Margins = Annotated[
    list[str] | None,
    typer.Option(
        "--margin", help="Largest acceptable change for the worse: metric=value, in the metric's unit. Repeatable."
    ),
]


AcceptWeak = Annotated[
    bool,
    typer.Option(
        "--accept-weak",
        help="Accept a weak test: a claim that is UNDERPOWERED only for this reason gives exit code 0.",
    ),
]


def compare(
    base: Annotated[str, typer.Argument(help="A baseline file, or a run's folder.")],
    new: Annotated[str, typer.Argument(help="Folder of the run to compare with it.")],
    margin: Margins = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the metrics of two runs, paired by seed, without a verdict (for a verdict, see gate)."""
    with reported_errors():
        from ..reports.reading.run_folder import margins_of
        from ..reports.regression.baseline import Baseline
        from ..reports.regression.comparison import compare_runs
        from ..reports.regression.gated_run import as_data, cell_table, gap_lines, note_lines
        from ..suites.config.source import config_errors
        from ..suites.config.tables.margins import stated_margins
        from .progress import print_table

        with config_errors():
            margins = margins_of(new) | stated_margins(margin or ())
            found = compare_runs(Baseline.read(base), Baseline.read(new), margins=margins)
        if json:
            import json as writer  # The option has the name of the module.

            typer.echo(writer.dumps(as_data(found), indent=1))
            return
        print_table(cell_table(found, found.cells))
        for line in (*gap_lines(found), *note_lines(found)):
            print_lines(line)


def gate(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    baseline: Annotated[
        str | None, typer.Option(help="Compare its cells with this baseline file or run folder as well.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Write the baseline file from this run.")] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the result of every claim and cell to this file as JUnit XML.")
    ] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the verdict to this file as Markdown.")] = None,
    fail_on: Annotated[
        str, typer.Option(help="Verdicts of claims that give a non-zero exit code.")
    ] = "fail,incomplete,inconclusive",
    accept_weak: AcceptWeak = False,
    margin: Margins = None,
) -> None:
    """Judge the claims of a run and compare its metrics with a baseline; print one line with the verdict and exit with
    the verdict's code.
    """
    with reported_errors():
        from ..reports.reading.run_folder import RunFolder
        from ..reports.regression.gated_run import accept as accepted
        from ..reports.regression.gated_run import judge_folder
        from ..suites.config.source import ConfigError, config_errors
        from ..suites.config.tables.margins import stated_margins

        with config_errors():
            folder, margins = RunFolder.read(run), stated_margins(margin or ())
            # Before anything is judged: a mistake in a path must not cost the verdict.
            _check_targets(run, baseline, [path for path in (junit, summary) if path is not None])
            # A run that becomes the baseline is not compared with itself: only its claims are judged.
            judged = judge_folder(
                folder,
                None if accept else baseline,
                margins=margins,
                fail_on=fail_on.split(","),
                accept_weak=accept_weak,
            )
            if accept:
                if baseline is None:
                    raise ConfigError("--accept needs --baseline FILE, the baseline file to write")
                print_lines(f"accept {accepted(folder, baseline)}")
        _write(judged, junit, summary)
        for line in _lines(judged):
            print_lines(line)
        raise typer.Exit(judged.outcome.exit_code)


def _lines(judged: "GatedRun") -> list[str]:
    from ..reports.regression.gated_run import correlation_words
    from ..reports.tables.stated import scope_lines

    comparison = judged.comparison
    lines = [] if comparison is None else [correlation_words(comparison)]
    outcome = judged.outcome
    return [
        *lines,
        *outcome.details,
        *scope_lines(judged.folder),
        f"gate   {outcome.verdict_line} (exit code {outcome.exit_code})",
    ]


def _write(judged: "GatedRun", junit: Path | None, summary: Path | None) -> None:
    from ..reports.formats.write import write_whole

    if junit is not None:
        from ..reports.regression.ci_files import junit as cases

        write_whole(junit, cases(judged))
    if summary is not None:
        from ..reports.regression.ci_files import step_summary

        # GitHub's own file is appended to: another command of the same step may have written there.
        step_file = os.environ.get("GITHUB_STEP_SUMMARY")
        if step_file and summary.resolve() == Path(step_file).resolve():
            with summary.open("a", encoding="utf-8") as file:
                file.write(step_summary(judged))
        else:
            write_whole(summary, step_summary(judged))


def _check_targets(run: Path, baseline: str | None, targets: list[Path]) -> None:
    """Refuse a target that would overwrite measured records or a baseline."""
    from ..reports.formats.write import check_targets
    from ..reports.regression.baseline import baseline_file

    pages = [run / "report.html", run / "report.md"]
    if baseline is None:
        check_targets(targets, [run], pages)
    else:
        base = Path(baseline)
        check_targets(targets, [run, base], [*pages, base / "report.html", base / "report.md", baseline_file(base)])
