"""Fit a run into a time budget: every part of the suite gets its minimum, and the time left goes to the weakest audits.

The numbers of runs are chosen before the run, from claims, alpha and times alone, never from a score; so the level of
every test stays the same. An audit is weak if it has only a small share of the runs that refute its claim at a truth of
twice its epsilon with power 0.9 (``enough_replicas``). The time left is divided so that all audits reach the same share
of what they need; no audit gets more than it needs, or than the suite's own number.
"""

import math
import re
import time
from dataclasses import dataclass
from typing import Any

from ...audit.wording import counted
from ...defenses.defense import Defense
from ..audits.audit_method import PlannedAudit
from ..audits.power import enough_replicas
from ..config.resolve import resolve
from ..config.source import ConfigError, Source
from ..config.tables.suite import Suite
from ..results.environment import cores
from .estimate import Times, expected_rest, expected_seconds, pilot_times
from .run_plan import RunPlan, plan_run

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LEAST = 8
"""The minimum of an audit is this part of the suite's own number of runs."""
_MOST = 100_000
"""Runs per arm, at most, that a budget gives to an audit."""


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """A suite with audits that fit into a time budget.

    Args:
        spec: the suite; its defenses name their own numbers of runs, and its audits stop as soon as they are certain.
        until: reading of ``time.monotonic`` after which no further stage of an audit is begun.
        minimum_s: expected wall seconds of the suite with the fewest runs.
        expected_s: expected wall seconds of the suite as it is.
        replicas: runs per arm, at most, by the label of the defense.
    """

    spec: Suite
    until: float
    minimum_s: float
    expected_s: float
    replicas: dict[str, int]

    @property
    def words(self) -> str:
        """One line that describes how the budget is used."""
        runs = ", ".join(f"{label} {count:,}" for label, count in self.replicas.items())
        return f"about {self.expected_s:.0f} s of wall time" + (f"; runs per arm, at most: {runs}" if runs else "")


def budget_seconds(budget: str) -> float:
    """Return the seconds of a budget such as ``90s``, ``10m`` or ``1.5h``; raise ConfigError for anything else."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", budget) if isinstance(budget, str) else None
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"budget must be a time above 0 in s, m or h, such as 90s, 10m or 1.5h, got {budget!r}")
    return float(found[1]) * _UNITS[found[2]]


def in_budget(
    spec: Suite,
    source: Source,
    budget: str,
    times: Times,
    *,
    workers: int | None = None,
    seed: int = 0,
    extra: tuple[str | Defense, ...] = (),
) -> Budgeted:
    """Fit a suite into a budget of wall time, which begins now.

    Args:
        budget: as for ``budget_seconds``.
        workers: number of jobs that are done at once, each as fast as on this machine; by default one per core of this
            machine.

    Raises:
        ConfigError: if even the fewest runs are expected to take longer; or as ``resolve`` and ``budget_seconds``.
    """
    start, seconds, workers = time.monotonic(), budget_seconds(budget), workers or cores()
    spec = _stopping(spec)
    plan = plan_run(resolve(spec, source, seed=seed, extra=extra))
    costs = _costs(plan, times, workers)
    # Defenses that were added from outside the suite keep its number of runs.
    audits = [audit for audit in plan.audits if audit.looks and _defense(audit) in spec.defenses]
    own = _own_replicas(spec, audits)
    least = {label: max(2, count // _LEAST) for label, count in own.items()}
    per_run = _seconds_per_run(audits, own, costs.cells, workers)
    fixed = costs.total - _seconds(own, per_run)
    minimum = fixed + _seconds(least, per_run)
    if minimum > seconds:
        raise ConfigError(
            f"budget {budget}: with the fewest runs this suite is expected to take about {minimum:.0f} s on "
            f"{counted(workers, 'worker')}: choose a larger budget, or fewer tables or seeds"
        )
    replicas = _filled(least, _most(audits, own), per_run, seconds - fixed)
    return Budgeted(
        spec=_with_replicas(spec, replicas),
        until=start + seconds - costs.after_runs,
        minimum_s=minimum,
        expected_s=fixed + _seconds(replicas, per_run),
        replicas=replicas,
    )


def until_spent(plan: RunPlan, budget: str, times: Times, *, workers: int) -> float:
    """Return the latest time, as a reading of ``time.monotonic``, at which a stage of a resumed run's audits may begin.
    The verdicts and the report then still fit into a budget of wall time that begins now.

    The numbers of runs stay those of the plan.

    Raises:
        ConfigError: if no audit of the plan stops early, so that all work must be done; or as ``budget_seconds``.
    """
    start, seconds = time.monotonic(), budget_seconds(budget)
    if plan.stages == 1:
        raise ConfigError(
            f"budget {budget}: the audits of this run must make all their runs, because it began without a budget and "
            "without audit.sequential = true; resume it without a budget"
        )
    return start + seconds - _costs(plan, times, workers).after_runs


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """Expected wall seconds: of each cell by id in one process, of the whole plan, and of what follows the runs."""

    cells: dict[str, float]
    total: float
    after_runs: float


def _costs(plan: RunPlan, times: Times, workers: int) -> _Costs:
    pilot = pilot_times(plan) if any(times.of(cell.facts) is None for cell in plan.cells) else None
    cells = expected_seconds(plan, times, pilot)
    rest = expected_rest(plan, times, pilot) or 0.0
    slowdown = 1.0 if pilot is None else pilot.slowdown
    cells, rest = {cell: seconds * slowdown for cell, seconds in cells.items()}, rest * slowdown
    verdicts = sum(cells.get(audit.cell.cell_id, 0.0) for audit in plan.audits) / workers
    # Half of the rest is the start, which is over when the first run begins.
    return _Costs(cells=cells, total=rest + sum(cells.values()) / workers, after_runs=verdicts + rest / 2)


def _stopping(spec: Suite) -> Suite:
    """The suite with audits that stop when they are certain, and with the suite's own number of runs for each."""
    if spec.audit is None or spec.audit.design == "one_run":
        return spec
    changes = {"sequential": True, "most_replicas": None}
    return spec.model_copy(update={"audit": spec.audit.model_copy(update=changes)})


def _own_replicas(spec: Suite, audits: list[PlannedAudit]) -> dict[str, int]:
    """The suite's own number of runs per arm for each audited defense."""
    own = 0 if spec.audit is None else spec.audit.replicas
    return {label: spec.defenses[label].replicas or own for label in dict.fromkeys(map(_defense, audits))}


def _most(audits: list[PlannedAudit], own: dict[str, int]) -> dict[str, int]:
    """The most runs per arm of each defense: its own number, or what its claims need if that is more."""
    most = dict(own)
    for audit in audits:
        label, last = _defense(audit), audit.looks[-1]
        needed = enough_replicas(audit.claim, alpha=last.alpha, limit=_MOST) or _MOST
        # Some methods make a multiple of the number that the suite names.
        most[label] = max(most[label], min(_MOST, math.ceil(needed * own[label] / last.replicas)))
    return most


def _defense(audit: PlannedAudit) -> str:
    return str(audit.cell.facts["defense"])


def _seconds_per_run(
    audits: list[PlannedAudit], own: dict[str, int], cells: dict[str, float], workers: int
) -> dict[str, float]:
    """Expected wall seconds of one run per arm of all claims of each defense."""
    spent = dict.fromkeys(own, 0.0)
    for audit in audits:
        spent[_defense(audit)] += sum(cells.get(block.cell.cell_id, 0.0) for block in audit.blocks) / workers
    return {label: seconds / own[label] for label, seconds in spent.items()}


def _filled(least: dict[str, int], most: dict[str, int], per_run: dict[str, float], seconds: float) -> dict[str, int]:
    """Runs per arm that take ``seconds``: an equal share of the most of each defense, but no fewer than its least."""

    def at(share: float) -> dict[str, int]:
        return {label: max(least[label], int(share * most[label])) for label in most}

    low, high = 0.0, 1.0
    if _seconds(at(high), per_run) <= seconds:
        return at(high)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _seconds(at(middle), per_run) <= seconds else (low, middle)
    return at(low)


def _seconds(replicas: dict[str, int], per_run: dict[str, float]) -> float:
    return sum(per_run[label] * count for label, count in replicas.items())


def _with_replicas(spec: Suite, replicas: dict[str, int]) -> Suite:
    named: dict[str, Any] = {
        label: table.model_copy(update={"replicas": replicas[label]}) if label in replicas else table
        for label, table in spec.defenses.items()
    }
    return spec.model_copy(update={"defenses": named})
