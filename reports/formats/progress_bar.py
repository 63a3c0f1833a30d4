"""Draw a run's progress as a bar, on a terminal or in a notebook."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..reading.printable import printable


class Bar:
    """A progress bar that is drawn on a terminal or in a notebook."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("run   "),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("cached {task.fields[cached]}  failed {task.fields[failed]}"),
            # Not stdout, which may be redirected into a file.
            console=Console(stderr=True),
        )
        self._failed = 0

    def start(self, total: int, cached: int) -> None:
        self._task = self._bar.add_task("run", total=total, completed=cached, cached=cached, failed=0)
        self._bar.start()

    def advance(self, titles: Iterable[str], failed: Iterable[str]) -> None:
        for reason in failed:
            self._failed += 1
            self._bar.console.print(f"FAILED {printable(reason)}", markup=False, highlight=False)
        self._bar.update(self._task, advance=len(list(titles)), failed=self._failed)

    def close(self) -> None:
        self._bar.stop()
