"""Compute the result rows of a job's cells (units of work, such as one attack) and store them; a failure is stored as a
row too.
"""

import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Attack, Evidence, Knowledge, Undefined
from ...attacks.gradient.image_attack import SearchAttack
from ...audit.parts import raised_at
from ...fl.message import Message
from ...fl.recorder import RoundView, View
from ...fl.training.devices import exact_convolutions
from ..config.resolve import AttackEntry
from ..config.source import ConfigError
from ..results.cell import Cell
from ..results.environment import peak_memory
from ..results.record import Record
from ..results.store import Store, UnwritableRunFolder

Works = Iterable[tuple[Cell, Callable[[], Sequence[Record]]]]
"""Cells, each with the function that computes its rows."""
_Trained = TypeVar("_Trained")
_Seen = TypeVar("_Seen")


class Job(Protocol):
    """A piece of a run's work that one worker does as a whole; it can be sent to another process."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells (units of work) whose rows this job stores."""
        ...

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        """Compute the rows of the cells that are not in ``finished`` and store them; return the titles of failed cells
        with their reasons.

        Raises:
            UnwritableRunFolder: if the folder cannot be written; the cells written before stay.
        """
        ...


@dataclass(kw_only=True)
class Clock:
    """A clock that measures the time and the memory spent on one result row."""

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
    train: Callable[[Clock], _Trained],
    works: Callable[[_Trained], Works],
) -> list[str]:
    """Train once, then compute and store the rows of each cell that is not in ``finished``; do nothing if ``finished``
    has all cells.

    The time of the training, by the clock that it gets, counts to the first cell.

    Returns the titles of failed cells with their reasons.

    Raises:
        UnwritableRunFolder: the cells written before stay.
    """
    wanted = [cell for cell in cells if cell.cell_id not in finished]
    if not wanted:
        return []
    # One thread per process: processes of several threads each would compete for the same cores.
    torch.set_num_threads(1)
    clock = Clock()
    trained: _Trained | None = None
    with failures_as_rows(wanted, store, clock) as failed:
        trained = train(clock)
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
    row with the reason, marked as failed, or as skipped if the error is ``Undefined``. For a failure also save a log
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


def raised_by_signal(error: BaseException) -> bool:
    """Return whether this exception was raised by a signal handler that the program running the suite has set.

    Such an exception, often ``SystemExit`` at SIGTERM, is meant to end the program and is no failure of a part.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    # A function, a lambda or a method; a handler without code of its own, such as a partial, is not recognised.
    codes = {code for handler in handlers if (code := getattr(handler, "__code__", None)) is not None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def check_device(device: str) -> None:
    """Raise ConfigError if this machine, or the installed build of PyTorch, does not support the device."""
    if device == "cuda" and not torch.cuda.is_available():
        built = f"PyTorch {torch.__version__} was built {'for' if torch.version.cuda else 'without'} CUDA"
        raise ConfigError(f'device "cuda" is not available here ({built}); leave the option out, or set device "cpu"')


def run_attack(attack: Attack, view: View, knowledge: Knowledge, rng: np.random.Generator, *, device: str) -> Evidence:
    """Run the attack. An attack by optimisation computes on ``device`` (CPU or GPU), but its random numbers are always
    drawn on the CPU.

    By default cuDNN's convolutions use TF32, with ten bits of each mantissa, and a search for exactly matching
    gradients would stop early. Here they use float32 and deterministic algorithms.
    """
    # Other attacks stay on the CPU: they search for nothing, so there is little to speed up.
    if device == "cpu" or not isinstance(attack, SearchAttack):
        return attack.run(view, knowledge, rng)
    with exact_convolutions():
        return attack.run(moved(view, device), moved_knowledge(knowledge, device), rng)


def moved(seen: _Seen, device: str) -> _Seen:
    """Return a copy of what an observer received, or of a part of it, with its tensors moved to ``device``."""
    found: Any = seen
    if isinstance(seen, Tensor):
        found = seen.to(device)
    elif isinstance(seen, View | RoundView | Message):
        found = replace(seen, **{one.name: moved(getattr(seen, one.name), device) for one in fields(seen)})
    elif isinstance(seen, Mapping):
        found = {name: moved(part, device) for name, part in seen.items()}
    elif isinstance(seen, tuple):
        found = tuple(moved(part, device) for part in seen)
    result: _Seen = found
    return result


def moved_knowledge(knowledge: Knowledge, device: str) -> Knowledge:
    """Return a copy of what the adversary knows, with public images, labels and the initial model moved to
    ``device``.
    """
    given = ("public_images", "public_labels", "initial")
    return replace(knowledge, **{name: moved(getattr(knowledge, name), device) for name in given})


@dataclass(frozen=True, kw_only=True)
class AttackCell:
    """An attack on a trained federation, with the unit of work under which its result rows are stored."""

    cell: Cell
    entry: AttackEntry
