"""Predict how long a planned run will take, from earlier runs on this machine or from pieces of its work."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ...audit.wording import counted
from ..results.environment import cores, hardware
from ..results.store import MANIFEST, RESULTS
from .pilot_times import Pilot
from .run_plan import RunPlan

RUNS = Path("runs")
"""Default folder of runs."""
_NEWEST = 20
"""Number of runs that are read, the newest ones: as code changes, so do times."""

Key = tuple[object, ...]
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Times:
    """A table of the CPU seconds that earlier runs spent on each unit of work, from which the time of a planned run is
    estimated.

    Args:
        exact: times by suite, federation, defense and attack.
        alike: times by data set, model and attack, in any suite.
        rests: by suite, the time of whole runs beyond their cells: start-up, imports of every process, planning, pages.
        runs: number of runs that were read.
    """

    exact: dict[Key, float]
    alike: dict[Key, float]
    rests: dict[str, float]
    runs: int

    def of(self, facts: dict[str, Any]) -> float | None:
        """Return the expected CPU seconds of a unit of work, from earlier units of the same kind; None if there were
        none.
        """
        return self.exact.get(_exact(facts), self.alike.get(_alike(facts)))

    def rest(self, suite: str) -> float | None:
        """Return the CPU seconds that earlier runs (of this suite, or else of any) spent outside their units of work,
        such as on reports; None if not recorded.
        """
        return self.rests.get(suite, median(self.rests.values()) if self.rests else None)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A run that was read; ``whole`` is its time from start to pages, None where it was not recorded."""

    suite: str
    whole: float | None
    rows: tuple[dict[str, Any], ...]


def learnt(place: Path = RUNS) -> Times:
    """Return the median time of each kind of finished work in the run folders below ``place``; only runs on hardware
    like this machine's count.

    Files that cannot be read are left out: a missing estimate must not stop a run.
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
            # Beyond the medians, not its own cells, so that the same plan is estimated at the time that it took.
            rests.setdefault(run.suite, []).append(run.whole - sum(cells.of(row) or 0.0 for row in run.rows))
    return replace(cells, rests=_medians(rests))


def expected_seconds(plan: RunPlan, times: Times, pilot: Pilot | None = None) -> dict[str, float]:
    """Return the expected CPU seconds of the cells of a plan by id, from earlier runs or else from a pilot; cells of
    which neither knows the time are left out.
    """
    timed = {} if pilot is None else pilot.cells
    found = {cell.cell_id: times.of(cell.facts) for cell in plan.cells}
    found = {cell_id: timed.get(cell_id) if seconds is None else seconds for cell_id, seconds in found.items()}
    return {cell_id: seconds for cell_id, seconds in found.items() if seconds is not None}


def expected_rest(plan: RunPlan, times: Times, pilot: Pilot | None = None) -> float | None:
    """Return the expected CPU seconds of a run of the plan beyond its cells; None if not known."""
    learnt_rest = times.rest(str(plan.cells[0].facts["suite"]))
    if learnt_rest is None:
        return None if pilot is None else pilot.rest
    # A plan of far fewer cells than those of the runs may take less beyond them than they did, but never less than 0.
    return max(0.0, learnt_rest)


def estimate(plan: RunPlan, times: Times, pilot: Pilot | None = None) -> str:
    """Return the estimated time of a plan, such as ``about 50 s of CPU time, at least 25 s on 2 cores (learnt from 3
    runs in runs/)``.
    """
    known = expected_seconds(plan, times, pilot)
    if not known:
        return (
            "not known yet: it is learnt from earlier runs on this machine, and none in runs/ has such cells; "
            "fedassay plan times pieces of the work"
        )
    rest, unknown = expected_rest(plan, times, pilot), len(plan.cells) - len(known)
    total = sum(known.values()) + (rest or 0.0)
    # A lower bound: imports, pages and other work of one process take as long on any number of cores.
    words = f"about {_words(total)} of CPU time, at least {_words(total / cores())} on {cores()} cores"
    sources = [f"learnt from {times.runs} run{'s' * (times.runs > 1)} in runs/"] if times.runs else []
    sources += ["extended from pieces of the work that were timed now"] if pilot is not None else []
    shown = f"{words} ({', and '.join(sources)})"
    shown += f", and {unknown} of {counted(len(plan.cells), 'cell')} of unknown time" if unknown else ""
    return f"{shown}; start-up, imports and pages not counted: no run recorded them" if rest is None else shown


def _here(place: Path) -> Iterator[_Seen]:
    """The newest runs below ``place`` that were made on hardware like this."""
    found = sorted(place.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[:_NEWEST]:
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        # Workers of a cluster may have other processors than the machine that the manifest describes.
        elsewhere = isinstance(manifest, dict) and manifest.get("backends", []) not in ([], ["local"])
        if isinstance(manifest, dict) and manifest.get("hardware") == hardware() and not elsewhere:
            suite, whole = manifest.get("suite"), manifest.get("cpu_s")
            yield _Seen(
                suite=str(suite.get("name")) if isinstance(suite, dict) else "",
                whole=float(whole) if isinstance(whole, int | float) else None,
                rows=tuple(_first_rows(path.parent / RESULTS)),
            )


def _first_rows(path: Path) -> Iterator[dict[str, Any]]:
    """One row per cell: all rows of a cell carry its time."""
    try:
        lines: Iterable[bytes] = path.read_bytes().splitlines()
    except OSError:
        return
    seen = set()
    for line in lines:
        try:
            row = json.loads(line)
            # A failed cell ended early, so its time would make the next run look short.
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
