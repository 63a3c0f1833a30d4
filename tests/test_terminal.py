"""Progress: a bar where somebody watches, one line a cell in a log; no cell and no failure goes unsaid."""

import io
import sys

import pytest
from fedassay.terminal import Bar, Lines, progress
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
