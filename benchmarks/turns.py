"""Ways of doing the same work that take turns, each in a process of its own, with CPU seconds of each turn.

Load from elsewhere slows all ways of a round of turns alike, so ratios within a round of turns are more stable than the
seconds. A way is a function that calls ``turn_over`` when its turn has ended; its first turn, which prepares and warms
up, is not counted. Seconds are those of the process, all its threads and (on Linux) all processes below it.
"""

import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

_PATIENCE = 20
TurnOver = Callable[[], None]
Way = Callable[[TurnOver], Any]
"""Runs to its end, with one call of ``turn_over`` per turn, and returns plain data; spawned processes import it."""


@dataclass(kw_only=True)
class Taken:
    """What the turns of one way took.

    ``first``: CPU seconds of the first turn; ``seconds``: of each later turn; ``peak``: GiB that its process held at
    most, without processes below it, and ``before`` the work began; ``result``: what the way returned; ``error``: the
    reason why it ended early, empty if it did not.
    """

    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    peak: float = 0.0
    before: float = 0.0
    result: Any = None
    error: str = ""

    def ratio_to(self, other: "Taken") -> str:
        """Return the median and the range of the ratios to another way's seconds, turn by turn."""
        ratios = [own / its for own, its in zip(self.seconds, other.seconds, strict=True)]
        return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def take_turns(ways: Mapping[str, Way], turns: int) -> dict[str, Taken]:
    """Run all ways to their end, turn by turn: each has ``turns`` turns after its first one."""
    spawn = multiprocessing.get_context("spawn")
    found, ends = {name: Taken() for name in ways}, dict[str, Connection]()
    running = []
    for name, way in ways.items():
        ends[name], far = spawn.Pipe()
        running.append(spawn.Process(target=_work, args=(way, far)))
        running[-1].start()
        far.close()
    # One more round of turns, in which the ways return.
    for turn in range(turns + 2):
        for name, taken in found.items():
            if not taken.error:
                _one_turn(ends[name], taken, turn, turns)
    for process in running:
        process.join(_PATIENCE)
        process.terminate()  # Threads of a library that failed may wait forever.
    return found


def _one_turn(end: Connection, taken: Taken, turn: int, turns: int) -> None:
    try:
        end.send("go")
        kind, value = end.recv()
    except (EOFError, OSError):
        kind, value = "failed", "its process ended"
    if kind == "turn" and turn <= turns:
        if turn:
            taken.seconds.append(value)
        else:
            taken.first = value
    elif kind == "done" and turn == turns + 1:
        taken.result, taken.before, taken.peak = value
    else:
        taken.error = value if kind == "failed" else f"{kind} after {turn} turns"


def _work(way: Way, end: Connection) -> None:
    """Run one way in this process, and wait for a word at the end of each turn."""
    # The libraries are to behave as in a script of their own; pfl asks for this name.
    multiprocessing.current_process().name = "MainProcess"
    end.recv()
    before, started = peak_memory(), cpu_seconds()

    def turn_over() -> None:
        nonlocal started
        end.send(("turn", cpu_seconds() - started))
        end.recv()
        started = cpu_seconds()

    try:
        end.send(("done", (way(turn_over), before, peak_memory())))
    except ImportError as error:
        end.send(("failed", f"not installed: {error}"))
    except Exception as error:
        traceback.print_exc()
        end.send(("failed", f"{type(error).__name__}: {error}"))
    end.close()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, of those that it has ended, and of those that run below it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _below(os.getpid())


def _below(root: int) -> float:
    """CPU seconds of all running processes below ``root``; 0 on systems without ``/proc``."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = entry.read_text().partition(" (")
        except OSError:  # It has ended.
            continue
        fields = rest.rpartition(")")[2].split()
        parents[int(number)] = int(fields[1])
        # User and system time, its own and that of the processes that it has ended.
        seconds[int(number)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(spent for number, spent in seconds.items() if number != root and _is_below(number, root, parents))


def _is_below(number: int, root: int, parents: Mapping[int, int]) -> bool:
    while number in parents and number != root:
        number = parents[number]
    return number == root


def peak_memory() -> float:
    """Return the process's peak memory in GiB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2**30 if sys.platform == "darwin" else used / 2**20
