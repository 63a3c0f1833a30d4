"""Carry out a planned run in worker processes and give its verdict; the run can be interrupted and resumed."""

import math
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ...attacks.attack import Attack
from ...audit.output_file import is_changed
from ...defenses.defense import Defense
from ..attacking.finished_cells import Job, check_device
from ..audits.audit_method import omitted_row, out_of_time, stop_reason
from ..config.catalogue import folder_from_manifest, names_data_files, path_from_run, paths_of
from ..config.resolve import ResolvedSuite, resolve
from ..config.source import ConfigError, Source
from ..config.suite_file import check_suite
from ..config.tables.suite import Suite
from ..planning.run_plan import RunPlan, plan_run
from ..results.environment import PACKAGES, Cost, git, hardware, versions
from ..results.outcome import Outcome, accepting_weak, judge_run
from ..results.rows import skipped_counts
from ..results.store import GATE, MANIFEST, Store, digests
from ..scoring.images import fetch_once
from .backend import Backend, run_job


class Progress(Protocol):
    """An interface for displays of a run's progress; the run calls the display's methods."""

    def start(self, total: int, cached: int) -> None:
        """Start the display of a run with ``total`` units of work, of which ``cached`` were finished before."""
        ...

    def advance(self, titles: Iterable[str], failed: Iterable[str]) -> None:
        """Show that some work is finished; the arguments are its titles, and the title and reason of each failure."""
        ...

    def close(self) -> None:
        """Close the display; the run calls this last, also after an error."""
        ...


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A planned run together with the folder that holds its results.

    Args:
        whole: True where nothing was done in an earlier session, so that ``cost`` covers the whole run.
        until: reading of ``time.monotonic`` after which no later stage of an audit is begun.
    """

    suite: ResolvedSuite
    plan: RunPlan
    store: Store
    cost: Cost
    whole: bool
    until: float = math.inf


def launch(
    spec: Suite,
    source: Source,
    *,
    seed: int = 0,
    extra: tuple[str | Defense, ...] = (),
    folder: Path | None = None,
    command: str = "",
    cost: Cost | None = None,
    until: float = math.inf,
) -> Launch:
    """Plan a suite's run, calibrate its defenses and write the run's manifest; no training has started yet.

    Args:
        extra: defenses to add, as in ``resolve``.
        folder: of the run; by default a new folder in ``runs/``.
        command: the command line or call, for the manifest.
        cost: a counter that the caller started earlier, before slow imports.
        until: reading of ``time.monotonic`` after which no later stage of an audit is begun.

    Raises:
        ConfigError, DatasetMissing: see ``resolve`` and ``check_device``; also if ``folder`` already holds a run, or
            cannot be made or written.
    """
    # First, so that loading data and calibrating count to the run's cost.
    cost = cost or Cost()
    check_device(spec.device)
    # Everything that may be wrong with a suite is checked before the folder is created.
    suite = resolve(spec, source, seed=seed, extra=extra)
    plan = plan_run(suite)
    if any(isinstance(one.part.instance, Attack) and one.attack.reconstructs for one in suite.attacks):
        fetch_once()
    started = datetime.now(UTC)
    name = f"{started:%Y-%m-%dT%H-%M-%SZ}_{spec.name}_{secrets.token_hex(2)}"
    place = folder or Path("runs") / name
    manifest = _manifest(suite, plan, place.name, seed, command, started)
    # Resume needs the folder only for the suite's own modules and data files; other manifests do not reveal it.
    if (source.folder and any(paths_of(spec))) or names_data_files(spec):
        manifest["suite_folder"] = path_from_run(source.data_folder, place)
    return Launch(
        suite=suite,
        plan=plan,
        store=Store.create(place, manifest, claims_of(plan)),
        cost=cost,
        whole=True,
        until=until,
    )


def claims_of(plan: RunPlan) -> list[dict[str, Any]]:
    """Return every privacy claim of the plan, as the entries of claims.json."""
    return [claim.to_dict() for claim in plan.claims]


def relaunch(folder: Path, *, retry_failed: bool = False, show: Callable[[str], object] = lambda line: None) -> Launch:
    """Reopen an unfinished run from its folder to continue it. With ``retry_failed``, failed work is repeated too, and
    so is all work that depends on a part whose code has changed. Before anything is imported, ``show`` gets a line that
    names the modules and files that the run will execute, if it names any.

    Raises:
        ConfigError: if the folder holds no run, a part cannot be imported any more, or code or data have changed since.
    """
    store = Store.open(folder)
    manifest = store.manifest()
    if manifest.get("schema") != "manifest-1":
        raise ConfigError(
            f"{folder / MANIFEST}: unknown schema {manifest.get('schema')!r}; this version of fedassay reads manifest-1"
        )
    # Before anything that it names is imported.
    if is_changed(manifest):
        raise ConfigError(
            f"{folder / MANIFEST} differs from its checksum, and resuming would run the code that it names: "
            "restore the file, or start a new run"
        )
    kinds = {"suite": dict, "seed": int, "run_id": str, "versions": dict}
    if lacking := [key for key, kind in kinds.items() if type(manifest.get(key)) is not kind]:
        raise ConfigError(f"{folder / MANIFEST} lacks {', '.join(lacking)}, or has values of a wrong type for them")
    _same_versions(folder, manifest["versions"])
    source = Source(str(folder / MANIFEST), folder=folder_from_manifest(manifest.get("suite_folder"), folder))
    spec = check_suite(manifest["suite"], source)
    check_device(spec.device)
    if named := sorted({name for _, name in paths_of(spec)}):
        show(
            f"code   this command runs code that {folder} names: {', '.join(named)} (searched first in "
            f"{source.folder or '.'})"
        )
    suite = resolve(spec, source, seed=manifest["seed"])
    _same_data(folder, manifest.get("data"), suite.digests)
    plan = plan_run(suite)
    mended = plan.run_id != manifest["run_id"]
    if mended and not (retry_failed and manifest.get("settings_id") == plan.settings_id):
        raise ConfigError(
            f"{folder} cannot be resumed: the suite, a data set, or the code of a defense or attack changed since the "
            f"run began (its id was {manifest['run_id']} and would now be {plan.run_id}). "
            "If you mended a part of your own, resume with --retry-failed, which also computes again what depends on "
            "it. Else start a new run; a report can still be made of this run's finished measurements"
        )
    with store.locked():
        store.write_claims(claims_of(plan))  # The claims follow from the manifest, so a damaged file can be replaced.
        if mended:
            store.write_manifest(manifest | _mended(manifest, plan))
            # Cells that do not depend on the part have the same id as before, and so their rows stay.
            store.forget_others({cell.cell_id for cell in plan.cells})
        if retry_failed:
            store.forget_failed()
    return Launch(suite=suite, plan=plan, store=store, cost=Cost(), whole=False)


def _mended(manifest: dict[str, Any], plan: RunPlan) -> dict[str, Any]:
    """The changed entries of the manifest of a run whose parts have changed; the former ids stay in it."""
    former = [*manifest.get("former_run_ids", []), manifest["run_id"]]
    return {"run_id": plan.run_id, "former_run_ids": former, "planned_cells": len(plan.cells)}


def _same_versions(folder: Path, then: dict[str, str]) -> None:
    """Raise ConfigError where a package's version has changed: rows of one run must come from one version."""
    now = versions()
    changed = [
        f"{name} was {then.get(name)} and is now {now.get(name)}"
        for name in PACKAGES
        if then.get(name) != now.get(name)
    ]
    if changed:
        raise ConfigError(
            f"{folder} cannot be resumed, because packages have changed: {'; '.join(changed)}. "
            "Start a new run; a report can still be made of this run's finished measurements"
        )


def _same_data(folder: Path, then: object, now: dict[str, str]) -> None:
    """Raise ConfigError where a data set has changed: results of the old and of the new data must not be mixed."""
    # A manifest without the digests is caught by the run's id, which contains them.
    changed = [name for name, digest in now.items() if isinstance(then, dict) and then.get(name, digest) != digest]
    if changed:
        raise ConfigError(
            f"{folder} cannot be resumed, because the data changed since the run began: {', '.join(changed)}. Restore "
            "the old data, or start a new run; a report can still be made of this run's finished measurements"
        )


def carry_out(begun: Launch, progress: Progress, backend: Backend) -> Outcome:
    """Carry out all work of a run that is not yet done, by the workers of ``backend``; return the verdict of the whole
    run.

    Raises:
        UnwritableRunFolder: if the folder cannot be written; ClusterError: if the backend's cluster could not do all
            work; KeyboardInterrupt: each leaves a run that can be resumed.
    """
    with begun.store.locked():
        return _carried_out(begun, progress, backend)


def _carried_out(begun: Launch, progress: Progress, backend: Backend) -> Outcome:
    plan, store = begun.plan, begun.store
    _record_backend(store, backend.name)
    # Cells that an interrupted session finished but did not append yet are appended now.
    recorded = store.collect()
    progress.start(len(plan.cells), len(recorded))
    try:
        with store.session() as shared:
            for work, failed in finished_jobs(
                plan, shared, frozenset(recorded), backend, begun.cost, until=begun.until
            ):
                _append(store, [cell for cell in work.cells if cell.cell_id not in recorded], failed, progress)
    finally:
        progress.close()
    return close(begun)


def _record_backend(store: Store, name: str) -> None:
    """Add a backend to those that the manifest names; rows do not depend on it, so that a run may use several."""
    manifest = store.manifest()
    named = manifest.get("backends", [])
    if name not in named:
        store.write_manifest(manifest | {"backends": [*named, name]})


def close(begun: Launch) -> Outcome:
    """Compute the verdict on a run from its recorded results, and write it to the run's folder."""
    store = begun.store
    rows = store.rows()
    planned = {cell.cell_id for cell in begun.plan.cells}
    missing = planned - {record.cell_id for record in rows.records}
    accepts = store.manifest()["suite"].get("gate", {}).get("accept_weak", False)
    records = accepting_weak(rows.records) if accepts else rows.records
    gate = judge_run(records, missing=len(missing), **skipped_counts(rows.skipped))
    found = {"verdict_line": gate.verdict_line, "exit_code": gate.exit_code}
    store.write_json(GATE, found | digests(store.folder, rows))
    # The manifest is last: its time of finishing means that gate.json is complete.
    store.write_manifest(store.manifest() | {"finished": _now(datetime.now(UTC))})
    return gate


def record_cost(begun: Launch) -> None:
    """Write the run's total CPU time to its manifest; later plans estimate their time from it.

    A resumed run has none: its earlier sessions were interrupted before they could record theirs.
    """
    if begun.whole:
        begun.store.write_manifest(begun.store.manifest() | {"cpu_s": round(begun.cost.seconds(), 2)})


def _append(store: Store, cells: Iterable[Any], failed: list[str], progress: Progress) -> None:
    done = list(cells)
    for cell in done:
        store.append(cell.cell_id)
    progress.advance([cell.title for cell in done], failed)


def _manifest(
    suite: ResolvedSuite, plan: RunPlan, name: str, seed: int, command: str, started: datetime
) -> dict[str, Any]:
    return {
        "schema": "manifest-1",
        "run_id": plan.run_id,
        "settings_id": plan.settings_id,
        "name": name,
        "suite": suite.spec.model_dump(mode="json"),
        "seed": seed,
        "seeds": list(suite.seeds),
        "command": command,
        "started": _now(started),
        "finished": None,
        "versions": versions(),
        "python": platform.python_version(),
        "git": git(),
        "hardware": hardware(),
        "backends": [],
        "data": suite.digests,
        "planned_cells": len(plan.cells),
    }


def _now(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def finished_jobs(
    plan: RunPlan,
    store: Store,
    finished: frozenset[str],
    backend: Backend,
    cost: Cost,
    *,
    until: float = math.inf,
) -> Iterable[tuple[Job, list[str]]]:
    """Carry out the unfinished jobs, then the later stages of sequential audits, then the audits; yield each job with
    its failures as soon as it ends.

    The CPU time of worker processes is added to ``cost``.

    ``until``: reading of ``time.monotonic`` after which no later stage is begun.
    """

    def unfinished(jobs: Iterable[Job]) -> list[Job]:
        return [job for job in jobs if not finished.issuperset(cell.cell_id for cell in job.cells)]

    yield from _carried(unfinished(plan.jobs), store, backend, cost)
    for stage in range(1, plan.stages):
        # Runs that the looks before have made needless are recorded as such, and not made.
        needed = list[Job]()
        for audit in plan.audits:
            blocks = [block for block in audit.blocks if block.stage == stage and block.cell.cell_id not in finished]
            reason = stop_reason(audit.opened(), stage - 1, store) if blocks else ""
            if blocks and not reason and time.monotonic() >= until:
                reason = out_of_time(audit, stage - 1)
            if not reason:
                needed += blocks
                continue
            for block in blocks:
                store.finish(block.cell.cell_id, [omitted_row(block, reason)])
                yield block, []
        yield from _carried(needed, store, backend, cost)
    # An audit pools what several jobs have written.
    yield from _carried(unfinished(plan.audits), store, backend, cost)


def _carried(todo: list[Job], store: Store, backend: Backend, cost: Cost) -> Iterator[tuple[Job, list[str]]]:
    """Carry out jobs of which none depends on another."""
    sent = [job for job in todo if _can_be_sent(job)] if backend.sends(len(todo)) else []
    if not backend.sends(len(sent)):
        sent = []
    for done in backend.results(sent, store) if sent else ():
        cost.add_worker(done.worker, done.cpu_s)
        yield sent[done.index], done.failed
    # A part of the user's own that cannot be pickled, such as one that holds a lock, runs in this process.
    for job in todo:
        if not any(job is one for one in sent):
            yield job, run_job(job, store)


def _can_be_sent(job: Job) -> bool:
    # The functions with which joblib sends jobs; lazy, because a run in one process does not need them.
    from joblib.externals.loky.backend.reduction import dumps, loads

    try:
        loads(dumps(job))
    except Exception:  # A part's own methods of pickling may raise anything.
        return False
    return True
