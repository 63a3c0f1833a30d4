"""Progress: a bar where somebody watches, one line a cell in a log; no cell and no failure goes unsaid."""

import io
import sys

import pytest
import typer
from fedassay.cli import progress as progress_module
from fedassay.cli.errors import reported_errors
from fedassay.cli.progress import Bar, Lines, print_table, progress
from fedassay.reports.tables.table import Table
from fedassay.suites.config.source import ConfigError
from rich.console import Console


@pytest.mark.parametrize(("watched", "kind"), [(True, Bar), (False, Lines)])
def test_a_bar_is_for_a_terminal_and_lines_are_for_a_log(monkeypatch, watched, kind):
    stream = io.StringIO()
    stream.isatty = lambda: watched
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(progress()) is kind


def test_a_log_numbers_the_cells_from_those_that_were_finished_before(capsys):
    lines = Lines()
    lines.start(5, 2)
    lines.advance(["a", "b"], ["b: ValueError: [no] budget"])
    lines.advance(["c"], [])
    lines.close()
    assert capsys.readouterr().out.splitlines() == [
        "run    5 cells, cached 2",
        "run    3/5 a",
        "run    4/5 b",
        "FAILED b: ValueError: [no] budget",
        "run    5/5 c",
    ]


def test_a_long_run_has_a_line_per_tenth_with_the_time_that_is_left(capsys, monkeypatch):
    clock = iter(range(4000))
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    lines = Lines()
    lines.start(182, 2)
    for number in range(180):
        lines.advance([f"cell {number}"], [])
    out = capsys.readouterr().out.splitlines()
    # A second for each of 163 cells.
    assert out[:2] == ["run    182 cells, cached 2", "run    19/182, about 3 minutes left, and longer if audits follow"]
    assert (len(out), out[-1]) == (11, "run    182/182 cell 179")


def test_no_time_is_estimated_for_verdicts_from_cells_that_take_less(capsys, monkeypatch):
    now = iter([0, *range(1, 87), *range(100, 1500, 100)])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(now))
    lines = Lines()
    lines.start(100, 0)
    for number in range(100):
        lines.advance([f"dp_sgd {'pooled' if number > 85 else number}"], [])
    out = capsys.readouterr().out.splitlines()
    assert out[8] == "run    80/100, about 20 seconds left, and longer if audits follow"
    # Each verdict took a hundred seconds, so that each has a line.
    assert out[9:] == [f"run    {number}/100 dp_sgd pooled" for number in range(87, 101)]


def test_a_bar_counts_cells_and_failures_and_prints_reasons_as_they_are():
    bar, out = Bar(), io.StringIO()
    bar._bar.live.console = Console(file=out, force_terminal=True, width=120)
    bar.start(5, 2)
    bar.advance(iter(["a", "b"]), iter(["b: ValueError: [bold]no[/bold] budget"]))
    bar.close()
    (task,) = bar._bar.tasks
    assert (task.completed, task.total, task.fields["cached"], task.fields["failed"]) == (4, 5, 2, 1)
    assert "FAILED b: ValueError: [bold]no[/bold] budget" in out.getvalue()
    assert "4/5" in out.getvalue()


EVIL = "\u001b[2J\u001b[31mgate   OK\n\rgate   OK\u202e"
CLEAN = "\ufffd[2J\ufffd[31mgate   OK gate   OK\ufffd"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ConfigError(EVIL), [CLEAN]),
        (ConfigError(EVIL, "second"), [CLEAN, "second"]),
        (FileNotFoundError(EVIL), [CLEAN]),
        (OSError(EVIL), [f"INCOMPLETE: {CLEAN}"]),
    ],
)
def test_an_error_clears_no_screen_and_forges_no_line(capsys, error, lines):
    with pytest.raises(typer.Exit), reported_errors():
        raise error
    assert capsys.readouterr().err.split("\n") == [*lines, ""]


def test_progress_and_tables_clear_no_screen_and_forge_no_line(capsys):
    lines = Lines()
    lines.start(1, 0)
    lines.advance([EVIL], [EVIL])
    print_table(Table(title=EVIL, headers=("a",), rows=((EVIL,),), note=EVIL))
    out = capsys.readouterr().out
    assert not set("\x1b\r\u202e") & set(out)
    assert not any(line.startswith("gate") for line in out.splitlines())


def test_the_names_of_a_suite_clear_no_screen_and_forge_no_line(say, suite_file):
    name = r"\u001b[2J\u001b[31mgate   OK\n\u202e"
    result = say("plan", suite_file("[defenses.none]", f'[defenses."{name}"]\n[defenses."2{name}"]'))
    assert result.exit_code == 2
    assert not set("\x1b\r\u202e") & set(result.output)
    # What the program itself tells in lines of their own stays so.
    named = [line.split(": ")[1].split(" must be")[0] for line in result.stderr.splitlines() if " must be" in line]
    assert named == [f"defenses.{two}\ufffd[2J\ufffd[31mgate   OK \ufffd" for two in ("", "2")]


def test_a_table_is_drawn_on_a_terminal_and_plain_elsewhere(monkeypatch, capsys):
    table = Table(title="T", headers=("a", "b"), rows=(("[x]", "1"),), numeric=frozenset({1}), note="n")
    print_table(table)
    assert capsys.readouterr().out == "\nT\n\na    b\n---  -\n[x]  1\nn\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(table)
    drawn = capsys.readouterr().out
    assert "[x]" in drawn
    assert "┃" in drawn
