"""Estimate: how long a plan will take, learnt from earlier runs on this machine: their cells, and all the rest."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ..results.environment import cores, hardware
from ..results.store import MANIFEST, RESULTS
from .run_plan import RunPlan

RUNS = Path("runs")
"""Where runs go unless told."""
_NEWEST = 20
"""Runs that are read, the newest ones: code changes, and so do times."""

Key = tuple[object, ...]
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Times:
    """CPU seconds of cells like others: ``exact`` by suite, federation, defense and attack; ``alike`` by data set,
    model and attack, whatever the suite. ``rests``: by suite, what whole runs took beyond that: start-up, imports of
    every process, laying out, pages. ``runs``: how many were read.
    """

    exact: dict[Key, float]
    alike: dict[Key, float]
    rests: dict[str, float]
    runs: int

    def of(self, facts: dict[str, Any]) -> float | None:
        """What a cell took that was like this one; None where there was none."""
        return self.exact.get(_exact(facts), self.alike.get(_alike(facts)))

    def rest(self, suite: str) -> float | None:
        """What a run of this suite took beyond its cells, or else a run of any; None where no run said."""
        return self.rests.get(suite, median(self.rests.values()) if self.rests else None)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A run that was read: ``whole`` is what it took from its start to its pages, None where it does not say."""

    suite: str
    whole: float | None
    rows: tuple[dict[str, Any], ...]


def learnt(place: Path = RUNS) -> Times:
    """The medians of all finished cells below ``place``, of runs on hardware like this. What cannot be read is left
    out: an estimate is no reason to stop.
    """
    seen = list(_here(place))
    exact: dict[Key, list[float]] = {}
    alike: dict[Key, list[float]] = {}
    for row in (row for run in seen for row in run.rows):
        exact.setdefault(_exact(row), []).append(row["cpu_s"])
        alike.setdefault(_alike(row), []).append(row["cpu_s"])
    cells = Times(exact=_medians(exact), alike=_medians(alike), rests={}, runs=len(seen))
    rests: dict[str, list[float]] = {}
    for run in seen:
        if run.whole is not None:
            # Beyond the medians, not beyond its own cells: the same plan is estimated at what it took.
            rests.setdefault(run.suite, []).append(run.whole - sum(cells.of(row) or 0.0 for row in run.rows))
    return replace(cells, rests=_medians(rests))


def estimate(plan: RunPlan, times: Times) -> str:
    """``about 50 s of CPU time, at least 25 s on 2 cores (learnt from 3 runs in runs/)``."""
    known = [seconds for cell in plan.cells if (seconds := times.of(cell.facts)) is not None]
    if not known:
        return "not known yet: learnt from what runs took on this machine, and none in runs/ was like this"
    rest, unknown = times.rest(str(plan.cells[0].facts["suite"])), len(plan.cells) - len(known)
    # A plan of far fewer cells than those of the runs may take less beyond them than they did, but never less than 0.
    total = sum(known) + max(0.0, rest or 0.0)
    # What one process does, the imports and the pages among it, takes its time on any number of cores.
    words = f"about {_words(total)} of CPU time, at least {_words(total / cores())} on {cores()} cores"
    told = f"{words} (learnt from {times.runs} run{'s' * (times.runs > 1)} in runs/)"
    told += f", and {unknown} of {len(plan.cells)} cells of which nothing is known" if unknown else ""
    return f"{told}; start-up, imports and pages not counted, which none of them tells" if rest is None else told


def _here(place: Path) -> Iterator[_Seen]:
    """The newest runs below ``place`` that were made on such hardware."""
    found = sorted(place.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[:_NEWEST]:
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(manifest, dict) and manifest.get("hardware") == hardware():
            suite, whole = manifest.get("suite"), manifest.get("cpu_s")
            yield _Seen(
                suite=str(suite.get("name")) if isinstance(suite, dict) else "",
                whole=float(whole) if isinstance(whole, int | float) else None,
                rows=tuple(_first_rows(path.parent / RESULTS)),
            )


def _first_rows(path: Path) -> Iterator[dict[str, Any]]:
    """One row a cell: all rows of one carry its time."""
    try:
        lines: Iterable[bytes] = path.read_bytes().splitlines()
    except OSError:
        return
    seen = set()
    for line in lines:
        try:
            row = json.loads(line)
            known = row["cell_id"] in seen or not isinstance(row["cpu_s"], int | float) or row["status"] == "failed"
        except (ValueError, KeyError, TypeError):
            continue
        if not known:
            seen.add(row["cell_id"])
            yield row


def _exact(facts: dict[str, Any]) -> Key:
    return tuple(facts.get(name) for name in ("suite", "federation", "defense", "role", "attack"))


def _alike(facts: dict[str, Any]) -> Key:
    return tuple(facts.get(name) for name in ("dataset", "model", "role", "attack"))


def _medians(found: dict[K, list[float]]) -> dict[K, float]:
    return {key: median(seconds) for key, seconds in found.items()}


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
