"""Predict how long a planned run will take, from earlier runs on this machine or from pieces of its work.

Each piece is made twice, of two sizes, so that what every piece costs is separated from what grows: a training with its
rounds, a gradient search with its iterations, an audit's runs with their rounds and number. The pieces are the plan's
own jobs in a folder that is deleted; nothing of their results is read but the time.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ...audit.output_file import parsed_json
from ...audit.wording import counted
from ..attacking.finished_cells import AttackCell, Clock, failures_as_rows
from ..attacking.shadows import ShadowJob
from ..attacking.trial import TrialJob
from ..audits.audit_method import BlockJob, BlockMethod, PlannedAudit
from ..results.environment import cores, hardware
from ..results.store import MANIFEST, RESULTS, Store
from .run_plan import RunPlan

LIMIT = 10.0
"""CPU seconds after which no further piece is timed; the rest is estimated by pieces of the same kind."""
_SIZES = (1, 3)
"""Rounds, or iterations of a gradient search, of the two pieces."""
_VIEW_RUNS = 7_000
"""Runs, with and without the unit together, that trials of everything received make for a claim that holds: those from
which events are learned and fixed, at several pairs of inputs. Counted runs come on top where an event is promising."""
_START_UPS = 2.0
"""Time of a whole run beyond its work, in multiples of that up to its plan: report pages take about as long again."""
_LONGEST_START = 10.0
"""CPU seconds up to a plan, at most: a process that took longer, such as a notebook, has done other work before."""

Kind = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The expected CPU seconds of a plan, extrapolated from pieces of its own work.

    Args:
        cells: by the id of a cell; without those of which no piece could be timed, such as cells of mutants and of
            federations of other kinds.
        rest: of a run beyond its cells, in one process: imports, plan and report pages.
        slowdown: wall seconds per CPU second of the pieces; above 1 where other processes used this machine.
    """

    cells: Mapping[str, float]
    rest: float
    slowdown: float = 1.0


def pilot_times(plan: RunPlan, limit: float = LIMIT) -> Pilot:
    """Time pieces of a plan's own work now, and extrapolate the times to the whole plan.

    ``limit``: CPU seconds after which no further piece is begun; one that was begun is finished.
    """
    start, begun = time.process_time(), time.perf_counter()
    cells = _cells(plan, start, limit)
    waited = (time.perf_counter() - begun) / max(1e-3, time.process_time() - start)
    return Pilot(cells=cells, rest=_START_UPS * min(start, _LONGEST_START), slowdown=max(1.0, waited))


def _cells(plan: RunPlan, start: float, limit: float) -> dict[str, float]:
    # A half for audits, which otherwise would not be timed in a plan of many trainings.
    found = dict(_of_trials(plan, start + limit * (0.5 if plan.blocks else 1.0)))
    runs = _of_blocks(plan, start + limit)
    alike: dict[Kind, list[float]] = {}
    for block in plan.blocks:
        if (each := runs.get(_block_kind(block))) is not None:
            alike.setdefault(_similar(block), []).append(each)
    for block in plan.blocks:
        # A kind that there was no time for is taken to cost what similar ones do.
        if (kind := _block_kind(block)) not in runs and (others := alike.get(_similar(block))):
            runs[kind] = median(others)
        if (each := runs.get(kind)) is not None:
            found[block.cell.cell_id] = each * block.runs
    found |= dict(_of_audits(plan, runs))
    for job in plan.shadows:
        found |= _of_shadows(job, plan, found)
    return found


def _of_trials(plan: RunPlan, end: float) -> Iterator[tuple[str, float]]:
    times: dict[Kind, list[float]] = {}
    exact: dict[Kind, float] = {}
    for job in _first_seeds(plan.trials):
        if time.process_time() >= end:
            break
        for cell_id, seconds in _of_trial(job, end).items():
            facts = next(cell.facts for cell in job.cells if cell.cell_id == cell_id)
            exact[_kind(facts, "defense")] = seconds
            times.setdefault(_kind(facts), []).append(seconds)
    for cell in (cell for job in plan.trials for cell in job.cells):
        known = exact.get(_kind(cell.facts, "defense"))
        if known is None and (alike := times.get(_kind(cell.facts))):
            known = median(alike)
        if known is not None:
            yield cell.cell_id, known


def _first_seeds(trials: tuple[TrialJob, ...]) -> list[TrialJob]:
    """One trial for each federation and defense; those of different federations first, as far as time allows."""
    first: dict[Kind, TrialJob] = {}
    for job in trials:
        facts = job.cells[0].facts
        first.setdefault((facts["federation"], facts["defense"]), job)
    places: dict[object, int] = {}
    ranked = []
    for key, job in first.items():
        places[key[0]] = places.get(key[0], -1) + 1
        ranked.append((places[key[0]], job))
    return [job for _, job in sorted(ranked, key=lambda one: one[0])]


def _of_trial(job: TrialJob, end: float) -> dict[str, float]:
    """Expected CPU seconds of each cell of a trial."""
    small = _times_of(_shortened(job, _SIZES[0]))
    if time.process_time() >= end:
        # Of a large model one round takes all the time; what does not grow with the rounds is then a small part.
        return {cell_id: low * _sizes_of(job, cell_id)[0] for cell_id, low in small.items()}
    large = _times_of(_shortened(job, _SIZES[1]))
    found = {}
    for cell in job.cells:
        if (low := small.get(cell.cell_id)) is not None and (high := large.get(cell.cell_id)) is not None:
            found[cell.cell_id] = _extended(low, high, *_sizes_of(job, cell.cell_id))
    return found


def _extended(low: float, high: float, size: int, larger: int) -> float:
    """The time of a piece of ``size``, on the line through the times of the two that were made, of sizes 1 and
    ``larger``.
    """
    slope = max(0.0, high - low) / max(1, larger - _SIZES[0])
    return max(0.0, low + slope * (size - _SIZES[0]))


def _sizes_of(job: TrialJob, cell_id: str) -> tuple[int, int]:
    """What the time of a cell grows with, in the whole job and in the larger piece: the iterations of a gradient
    search, else the rounds.
    """
    attack = next((item.entry.attack for item in job.attacks if item.cell.cell_id == cell_id), None)
    iterations, rounds = getattr(attack, "iterations", None), job.federation.rounds
    return (iterations, _SIZES[1]) if isinstance(iterations, int) else (rounds, min(_SIZES[1], rounds))


def _shortened(job: TrialJob, size: int) -> TrialJob:
    rounds = min(size, job.federation.rounds)
    return replace(
        job,
        federation=job.federation.model_copy(update={"rounds": rounds}),
        attacks=tuple(_fewer_iterations(item, size) for item in job.attacks),
    )


def _fewer_iterations(item: AttackCell, size: int) -> AttackCell:
    if not isinstance(getattr(item.entry.attack, "iterations", None), int):
        return item
    part = item.entry.part
    return replace(
        item, entry=replace(item.entry, part=replace(part, instance=replace(part.instance, iterations=size)))
    )


def _times_of(job: TrialJob) -> dict[str, float]:
    """CPU seconds of the cells of a job, done in a folder of its own; a cell that fails has none."""
    return _in_a_folder(lambda store: job.run(store, frozenset()), [cell.cell_id for cell in job.cells])


def _in_a_folder(work: Callable[[Store], Any], cells: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fedassay") as name:
        store = Store(Path(name))
        work(store)
        rows = {cell: store.cell_records(cell) for cell in cells if store.is_finished(cell)}
    return {cell: found[0].cpu_s for cell, found in rows.items() if found and found[0].status != "failed"}


def _of_blocks(plan: RunPlan, end: float) -> dict[Kind, float]:
    """CPU seconds of one run of each kind of audit."""
    found: dict[Kind, float] = {}
    for block in _one_of_each_first(plan.blocks):
        kind = _block_kind(block)
        if kind not in found and time.process_time() < end:
            short = replace(block, replicas=min(block.replicas, block.audit.batch))
            rounds = block.claim.rounds or 1
            larger = min(_SIZES[1], rounds)
            pieces = [_run_time(short, count) for count in (_SIZES[0], larger)]
            if None not in pieces:
                low, high = (piece or 0.0 for piece in pieces)
                runs = block.runs * short.replicas / block.replicas
                found[kind] = _extended(low, high, rounds, larger) / runs
    return found


def _one_of_each_first(blocks: Iterable[BlockJob]) -> list[BlockJob]:
    """The blocks with one of each group of similar ones first, as far as time allows."""
    places: dict[Kind, int] = {}
    ranked = []
    for block in blocks:
        place = _similar(block)
        places[place] = places.get(place, -1) + 1
        ranked.append((places[place], block))
    return [block for _, block in sorted(ranked, key=lambda one: one[0])]


def _run_time(block: BlockJob, rounds: int) -> float | None:
    short = replace(block, claim=replace(block.claim, rounds=rounds))
    found = _in_a_folder(lambda store: short.run(store, frozenset()), [block.cell.cell_id])
    return found.get(block.cell.cell_id)


def _block_kind(block: BlockJob) -> Kind:
    return (block.cell.facts["federation"], block.cell.facts["defense"], block.method.name, block.claim.claim_id)


def _similar(block: BlockJob) -> Kind:
    """Blocks of one group differ in the defense, or in the numbers of its claim, alone."""
    claim = block.claim
    return (block.cell.facts["federation"], block.method.name, str(claim.unit), claim.part, str(claim.observer))


def _of_audits(plan: RunPlan, runs: Mapping[Kind, float]) -> Iterator[tuple[str, float]]:
    """The checks of one claim, which take about as long for every other, and the trials of what is received."""
    with_blocks = [audit for audit in plan.audits if audit.blocks]
    known = next((seconds for audit in with_blocks if (seconds := _check_time(audit)) is not None), None)
    for audit in with_blocks:
        each = runs.get(_block_kind(audit.blocks[0]))
        if known is not None and each is not None:
            # A control is refuted by its own runs, and needs no more trials.
            tried = audit.blocks[0].audit.trials > 0 and not audit.cell.facts["control"]
            yield audit.cell.cell_id, known + (each * _VIEW_RUNS if tried else 0.0)


def _check_time(audit: PlannedAudit) -> float | None:
    method = audit.method
    if not isinstance(method, BlockMethod):
        return None
    with tempfile.TemporaryDirectory(prefix="fedassay") as name:
        store, start = Store(Path(name)), time.process_time()
        with failures_as_rows([audit.cell], store, Clock()) as failed:
            # Those that every method has; the others read the audit's runs, and are quick.
            BlockMethod.checks(method, audit.opened(), store)
        return None if failed or store.is_finished(audit.cell.cell_id) else time.process_time() - start


def _of_shadows(job: ShadowJob, plan: RunPlan, found: Mapping[str, float]) -> dict[str, float]:
    """Trainings of all shadows, by the time of the federation's own training; they count to the first attack."""
    facts = job.cells[0].facts
    own = next(
        (
            found[trial.training.cell_id]
            for trial in plan.trials
            if trial.training is not None
            and trial.training.cell_id in found
            and (trial.training.facts["federation"], trial.training.facts["defense"])
            == (facts["federation"], facts["defense"])
        ),
        None,
    )
    if own is None:
        return {}
    return {cell.cell_id: job.count * own if number == 0 else 0.0 for number, cell in enumerate(job.cells)}


def _kind(facts: Mapping[str, Any], *more: str) -> Kind:
    return tuple(facts[name] for name in ("federation", "role", "attack", *more))


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
    """Return the median time of each kind of finished work in the run folders below ``place``; only runs on similar
    hardware count.

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
    """Return the expected CPU seconds of a plan's cells (units of work), keyed by id, from earlier runs or else from a
    pilot. Cells whose time is known from neither are left out.
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
            "not known yet, because no earlier run in runs/ has such cells; fedassay plan measures parts of the work "
            "and estimates the time"
        )
    rest, unknown = expected_rest(plan, times, pilot), len(plan.cells) - len(known)
    total = sum(known.values()) + (rest or 0.0)
    # A lower bound: imports, pages and other work of one process take as long on any number of cores.
    words = f"about {_words(total)} of CPU time, at least {_words(total / cores())} on {cores()} cores"
    sources = [f"estimated from {times.runs} run{'s' * (times.runs > 1)} in runs/"] if times.runs else []
    sources += ["extrapolated from parts of the work that were timed now"] if pilot is not None else []
    shown = f"{words} ({', and '.join(sources)})"
    shown += f", and the time of {unknown} of {counted(len(plan.cells), 'cell')} is not known" if unknown else ""
    return (
        f"{shown}; start-up, imports and reports are not included, because no run recorded their time"
        if rest is None
        else shown
    )


def _here(place: Path) -> Iterator[_Seen]:
    """The newest runs below ``place`` that were made on hardware like this."""
    found = sorted(place.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[:_NEWEST]:
        try:
            manifest = parsed_json(path.read_text(encoding="utf-8"))
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
            row = parsed_json(line)
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
