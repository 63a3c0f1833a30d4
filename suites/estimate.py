"""Estimate: how long a plan will take, learnt from the rows of earlier runs on this machine."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .environment import cores, hardware
from .run_plan import RunPlan
from .store import MANIFEST, RESULTS

RUNS = Path("runs")
"""Where runs go unless told."""
_NEWEST = 20
"""Runs that are read, the newest ones: code changes, and so do times."""

Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Times:
    """CPU seconds of cells like others: ``exact`` by suite, federation, defense and attack; ``alike`` by data set,
    model and attack, whatever the suite. ``runs``: how many were read.
    """

    exact: dict[Key, float]
    alike: dict[Key, float]
    runs: int

    def of(self, facts: dict[str, Any]) -> float | None:
        """What a cell took that was like this one; None where there was none."""
        return self.exact.get(_exact(facts), self.alike.get(_alike(facts)))


def learnt(place: Path = RUNS) -> Times:
    """The medians of all finished cells below ``place``, of runs on hardware like this. What cannot be read is left
    out: an estimate is no reason to stop.
    """
    exact: dict[Key, list[float]] = {}
    alike: dict[Key, list[float]] = {}
    runs = 0
    for folder in _here(place):
        runs += 1
        for row in _first_rows(folder / RESULTS):
            exact.setdefault(_exact(row), []).append(row["cpu_s"])
            alike.setdefault(_alike(row), []).append(row["cpu_s"])
    return Times(exact=_medians(exact), alike=_medians(alike), runs=runs)


def estimate(plan: RunPlan, times: Times) -> str:
    """``about 50 s of CPU time, 26 s on 2 cores (learnt from 3 runs in runs/)``. Judging takes no time to speak of."""
    cells = [cell for job in plan.jobs for cell in job.cells]
    known = [seconds for cell in cells if (seconds := times.of(cell.facts)) is not None]
    if not known:
        return "not known yet: learnt from what runs took on this machine, and none in runs/ was like this"
    total, unknown = sum(known), len(cells) - len(known)
    words = f"about {_words(total)} of CPU time, {_words(total / cores())} on {cores()} cores"
    told = f"{words} (learnt from {times.runs} run{'s' * (times.runs > 1)} in runs/)"
    return f"{told}, and {unknown} of {len(cells)} cells of which nothing is known" if unknown else told


def _here(place: Path) -> Iterator[Path]:
    """The newest runs below ``place`` that were made on such hardware."""
    found = sorted(place.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[:_NEWEST]:
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(manifest, dict) and manifest.get("hardware") == hardware():
            yield path.parent


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


def _medians(found: dict[Key, list[float]]) -> dict[Key, float]:
    return {key: median(seconds) for key, seconds in found.items()}


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
