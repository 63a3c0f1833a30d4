"""Show a run's progress and tables, with drawn bars and frames on a terminal and as plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ..audit.wording import counted, duration
from ..reports.formats.progress_bar import Bar
from ..reports.reading.printable import printable
from ..reports.tables.table import Table

if TYPE_CHECKING:
    from ..suites.execution.run import Progress


_TENTHS = 10
"""Lines about the progress of a run; one with fewer cells has a line for each."""
_POOLED = " pooled"
"""How the title of a verdict ends, which is one over all seeds."""
_LONG = 10.0
"""Seconds after which a verdict has a line of its own."""


class Lines:
    """A progress display for log files, which prints a line per tenth of the work, with the remaining time. Verdicts of
    audits come last and take longer, so no time is estimated for them; each verdict that takes long has a line of its
    own.
    """

    def start(self, total: int, cached: int) -> None:
        self._total, self._done, self._begun, self._at = total, cached, cached, time.monotonic()
        self._said, self._judging = self._at, False
        # Flushed, because a log is read while the run goes on.
        print(f"run    {counted(total, 'cell')}, cached {cached}", flush=True)

    def advance(self, titles: Iterable[str], failed: Iterable[str]) -> None:
        now = time.monotonic()
        for title in titles:
            self._done += 1
            self._judging |= title.endswith(_POOLED)
            tenth = _TENTHS * self._done // self._total > _TENTHS * (self._done - 1) // self._total
            slow = self._judging and now - self._said >= _LONG
            if self._total <= _TENTHS or self._done == self._total or slow or (self._judging and tenth):
                self._say(printable(f" {title}"), now)
            elif tenth:
                left = duration((now - self._at) / (self._done - self._begun) * (self._total - self._done))
                self._say(f", {left} left, and longer if audits follow", now)
        for reason in failed:
            print(f"FAILED {printable(reason)}", flush=True)

    def _say(self, words: str, now: float) -> None:
        self._said = now
        print(f"run    {self._done}/{self._total}{words}", flush=True)

    def close(self) -> None:
        return


def progress() -> "Progress":
    """Return a drawn progress bar on a terminal, or a display that prints plain lines elsewhere."""
    return Bar() if sys.stderr.isatty() else Lines()


def print_table(table: Table) -> None:
    """Print a table and its note: with drawn frames on a terminal, as aligned plain text elsewhere."""
    if not sys.stdout.isatty():
        lines = ["", table.title, "", *table.lines(), *([table.note] if table.note else [])]
        print(*map(printable, lines), sep="\n", flush=True)
        return
    drawn = RichTable(title=table.title, caption=table.note or None)
    for number, header in enumerate(table.headers):
        drawn.add_column(header, justify="right" if number in table.numeric else "left")
    for row in table.rows:
        # As Text, because square brackets in a reason would be read as markup.
        drawn.add_row(
            *(Text(printable(cell)) for cell in row),
            style="bold red" if any(cell.startswith("FAILS") for cell in row) else None,
        )
    Console().print(drawn)
