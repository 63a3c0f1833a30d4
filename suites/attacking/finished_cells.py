"""Compute the rows of a job's cells (units of work, such as one attack) and store them; a failure becomes a row."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from ...attacks.attack import Undefined
from ...audit.parts import raised_at
from ..jobs.cell import Cell
from ..results.environment import peak_memory
from ..results.record import Record
from ..results.store import Store, UnwritableRunFolder
from .signalled import raised_by_signal

Works = Iterable[tuple[Cell, Callable[[], Sequence[Record]]]]
"""Cells, each with the function that computes its rows."""
_Trained = TypeVar("_Trained")


@dataclass(kw_only=True)
class Clock:
    """A clock that measures the time and the memory spent on the measurement of one result row."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def fields(self) -> dict[str, float]:
        """Return the time and memory measured by this clock, as fields of a result row."""
        return {
            "wall_s": round(time.perf_counter() - self.wall, 4),
            "cpu_s": round(time.process_time() - self.cpu, 4),
            "peak_mem_mb": round(peak_memory() / 2**20, 1),
        }


def finish_job(
    cells: Sequence[Cell],
    store: Store,
    finished: frozenset[str],
    train: Callable[[], _Trained],
    works: Callable[[_Trained], Works],
    *,
    clock: Clock | None = None,
) -> list[str]:
    """Train once, then compute and store the rows of each cell that is not in ``finished``; nothing if all are.

    The time of the training, by ``clock``, counts to the first cell.

    Returns the titles of failed cells with their reasons.

    Raises:
        UnwritableRunFolder: the cells written before stay.
    """
    wanted = [cell for cell in cells if cell.cell_id not in finished]
    if not wanted:
        return []
    # One thread per process: processes of several threads each would compete for the same cores.
    torch.set_num_threads(1)
    clock = clock or Clock()
    trained: _Trained | None = None
    with failures_as_rows(wanted, store, clock) as failed:
        trained = train()
    return failed if trained is None else _finish_cells(works(trained), wanted, store, clock)


def finish_cell(cell: Cell, store: Store, finished: frozenset[str], rows: Callable[[], Sequence[Record]]) -> list[str]:
    """Compute and store the rows of one cell, unless it is in ``finished``; return a description of each failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    if cell.cell_id in finished:
        return []
    torch.set_num_threads(1)
    return _finish_cells([(cell, rows)], [cell], store, Clock())


def _finish_cells(works: Works, wanted: Sequence[Cell], store: Store, clock: Clock) -> list[str]:
    """Store the rows of the ``wanted`` cells; ``clock`` is that of the training, whose time counts to the first one."""
    failed: list[str] = []
    # Errors are caught cell by cell: one failing attack must not take the others with it.
    for cell, work in works:
        if cell in wanted:
            clock = clock if cell is wanted[0] else Clock()
            with failures_as_rows([cell], store, clock) as more:
                records = work()
                times = clock.fields()
                store.finish(cell.cell_id, [record.model_copy(update=times) for record in records])
            failed += more
    return failed


@contextmanager
def failures_as_rows(cells: Sequence[Cell], store: Store, clock: Clock) -> Iterator[list[str]]:
    """Catch an error in the ``with`` block. For each of ``cells`` (units of work, such as one attack), store a result
    row with the reason, marked as failed (or as skipped, if the error is ``Undefined``); for a failure also save a log
    file.

    An unwritable run folder is no failure of a part, nor is an exception that the caller's handler of a signal raised:
    both are passed on.
    """
    failed: list[str] = []
    try:
        yield failed
    except UnwritableRunFolder:
        raise
    except Undefined as omission:
        for cell in cells:
            store.finish(cell.cell_id, [cell.record(metric="none", status="skipped", reason=str(omission))])
    # A part, possibly the user's own, may raise anything, sys.exit() included: the other cells must still run.
    except (Exception, SystemExit) as error:
        if raised_by_signal(error):
            raise
        words = " ".join(f"{type(error).__name__}: {error}".split())[:500] + raised_at(error)
        reason = words.encode(errors="backslashreplace").decode()
        for cell in cells:
            store.save_text(cell.cell_id, "log.txt", traceback.format_exc())
            row = cell.record(metric="none", status="failed", verdict="", reason=reason, **clock.fields())
            store.finish(cell.cell_id, [row])
            failed.append(f"{cell.title}: {reason}")
