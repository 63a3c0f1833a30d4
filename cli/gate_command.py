"""The commands compare and gate: two runs side by side, and whether a run may pass."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import say
from .errors import told

if TYPE_CHECKING:
    from ..reports.regression.gated_run import GatedRun

Margins = Annotated[
    list[str] | None,
    typer.Option("--margin", help="A worsening that you would mind: metric=value, in the metric's unit. Repeatable."),
]


def compare(
    base: Annotated[str, typer.Argument(help="A baseline file, or a run's folder.")],
    new: Annotated[str, typer.Argument(help="The run's folder to hold against it.")],
    margin: Margins = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Put two runs side by side, paired seed by seed. Judges nothing: see gate."""
    with told():
        from ..reports.reading.run_folder import margins_of
        from ..reports.regression.baseline import Baseline
        from ..reports.regression.comparison import compare_runs
        from ..reports.regression.words import as_data, cell_table, gap_lines, note_lines
        from ..suites.config.margins import stated_margins
        from ..suites.config.source import ConfigError
        from .progress import print_table

        try:
            wished = margins_of(new) | stated_margins(margin or ())
            found = compare_runs(Baseline.read(base), Baseline.read(new), margins=wished)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if json:
            import json as writer

            typer.echo(writer.dumps(as_data(found), indent=1))
            return
        print_table(cell_table(found))
        for line in (*gap_lines(found), *note_lines(found)):
            say(line)


def gate(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    baseline: Annotated[
        str | None, typer.Option(help="Also hold its cells against this one: a baseline file, or a run's folder.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Make this run the baseline: write that file.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the cases as JUnit XML here.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the verdict as Markdown here.")] = None,
    fail_on: Annotated[
        str, typer.Option(help="What ends with an exit code of its own.")
    ] = "fail,incomplete,inconclusive",
    margin: Margins = None,
) -> None:
    """Judge a run: its claims, and its cells against a baseline. One verdict line, one exit code."""
    with told():
        from ..reports.reading.run_folder import RunFolder
        from ..reports.regression.gated_run import accept as accepted
        from ..reports.regression.gated_run import judge_folder
        from ..suites.config.margins import stated_margins
        from ..suites.config.source import ConfigError

        try:
            folder, wished = RunFolder.read(run), stated_margins(margin or ())
            _check_targets(run, baseline, [path for path in (junit, summary) if path is not None])
            # What is accepted is not held against itself: what is left to judge are its claims.
            judged = judge_folder(folder, None if accept else baseline, margins=wished, fail_on=fail_on.split(","))
            if accept:
                if baseline is None:
                    raise ConfigError("--accept needs --baseline FILE: where to write what this run measured")
                say(f"accept {accepted(folder, baseline)}")
        except ValueError as error:
            raise ConfigError(str(error)) from error
        _write(judged, junit, summary)
        for line in _lines(judged):
            say(line)
        raise typer.Exit(judged.outcome.exit_code)


def _lines(judged: "GatedRun") -> list[str]:
    from ..reports.regression.words import correlation_words

    found = judged.comparison
    lines = [] if found is None else [correlation_words(found)]
    return [
        *lines,
        *judged.outcome.details,
        f"gate   {judged.outcome.verdict_line} (exit code {judged.outcome.exit_code})",
    ]


def _write(judged: "GatedRun", junit: Path | None, summary: Path | None) -> None:
    from ..reports.formats.atomic_write import write_whole

    if junit is not None:
        from ..reports.regression.junit import junit as cases

        write_whole(junit, cases(judged))
    if summary is not None:
        from ..reports.regression.step_summary import step_summary

        # GitHub's own file is added to: another command of the same step may have written there.
        ours = os.environ.get("GITHUB_STEP_SUMMARY")
        if ours and summary.resolve() == Path(ours).resolve():
            with summary.open("a", encoding="utf-8") as file:
                file.write(step_summary(judged))
        else:
            write_whole(summary, step_summary(judged))


def _check_targets(run: Path, baseline: str | None, targets: list[Path]) -> None:
    """Nothing that was measured, and no baseline, is written over by a report."""
    from ..reports.formats.atomic_write import check_targets
    from ..reports.regression.baseline import baseline_file

    pages = [run / "report.html", run / "report.md"]
    if baseline is None:
        check_targets(targets, [run], pages)
    else:
        base = Path(baseline)
        check_targets(targets, [run, base], [*pages, base / "report.html", base / "report.md", baseline_file(base)])
