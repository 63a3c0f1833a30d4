"""Mutants: which there are, and what a run measures and writes of one of them."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType

import numpy as np
import torch

from ...audit.finding import Finding, Verdict
from ...audit.nearest import nearest
from ...defenses import controls as controlled
from ...defenses.controls import mechanisms
from ...defenses.controls.mutant import Mutant
from ..attacking.trial import Clock, failures_as_rows
from ..checks.check import check_rows
from ..config.catalogue import find, from_entry_points
from ..config.part_files import own_parts
from ..config.source import ConfigError
from ..jobs.cells import Cell, MutantJob
from ..results.record import Record
from ..results.store import Store
from .federated_mutant import federated_mutant, probed
from .mutant_audit import Bout, Contest, fight_broken, fight_correct, prepare_contest

MECHANISM, FEDERATION = "mechanism", "federation"


def known_mutants() -> dict[str, str]:
    """Every mutant by name with where it lives: a mechanism of its own, or a control defense in a federation."""
    own = {
        entry.name: MECHANISM
        for entry in pkgutil.iter_modules(mechanisms.__path__)
        if hasattr(importlib.import_module(f"{mechanisms.__name__}.{entry.name}"), "mutant")
    }
    controls = [
        name for name, part in own_parts("defense").items() if part.module.startswith(f"{controlled.__name__}.")
    ]
    foreign = [name for name, part in from_entry_points("defense").items() if part.control]
    return own | dict.fromkeys([*controls, *foreign], FEDERATION)


def chosen_mutants(only: tuple[str, ...]) -> dict[str, str]:
    """Those named, or all where none is; ConfigError for an unknown name."""
    known = known_mutants()
    for name in only:
        if name not in known:
            raise ConfigError(f"unknown mutant {name!r}; known: {nearest(name, known)}")
    return {name: known[name] for name in only or known}


@lru_cache(maxsize=64)
def build_mutant(name: str) -> Mutant:
    """The mutant of that name.

    Raises:
        ValueError: for a control that cannot be compared with a correct twin.
    """
    if known_mutants()[name] == FEDERATION:
        return federated_mutant(find("defense", name)())
    build: Callable[[], Mutant] = module_of(name).mutant
    return build()


def module_of(name: str) -> ModuleType:
    """The file that plants the bug and says which real one it stands for."""
    if known_mutants()[name] == FEDERATION:
        return importlib.import_module(find("defense", name).__module__)
    return importlib.import_module(f"{mechanisms.__name__}.{name}")


def run_mutant(job: MutantJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Plan and run the audits of both versions, write their rows; returns what failed.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    wanted = [cell for cell in job.cells if cell.cell_id not in finished]
    if not wanted:
        return []
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows(wanted, store, clock) as failed:
        spec = job.spec
        contest = prepare_contest(
            build_mutant(job.name),
            name=job.name,
            pilot=spec.pilot if known_mutants()[job.name] == MECHANISM else spec.pilot_federations,
            power=spec.power,
            alpha=spec.kill_alpha,
            limit=spec.limit,
        )
        for cell in wanted:
            rows = _rows(cell, job, contest, store)
            store.finish(cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
            clock = Clock()
    return failed


def _rows(cell: Cell, job: MutantJob, contest: Contest, store: Store) -> list[Record]:
    """One row a seed, whether its trials alone refute, and the row that decides."""
    broken = cell is job.broken
    fight, alpha = (fight_broken, job.spec.kill_alpha) if broken else (fight_correct, job.alpha)
    bout = fight(contest, name=job.name, seeds=job.seeds, alpha=alpha)
    each = [
        cell.record(
            **{"role": "replicas", "seed": seed},
            metric="refuted",
            value=float(finding.verdict is Verdict.REFUTED),
            n=_trials(finding),
            unit="whether this seed's trials refute",
        )
        for seed, finding in zip(job.seeds, bout.each, strict=True)
    ]
    decided = _decided(cell, bout, contest, store, broken=broken)
    if known_mutants()[job.name] != FEDERATION:
        return [*each, decided]
    exposures = probed(find("defense", job.name)(), broken=broken)
    failing = [exposure.words for exposure in exposures if exposure.kept is False]
    return [*each, *check_rows(cell, exposures), _with_probes(decided, failing)]


def _with_probes(decided: Record, failing: Sequence[str]) -> Record:
    """A broken probe refutes where statistics did not: the row says so, and that it was the probe."""
    if not failing:
        return decided
    reason = f"{decided.reason}; probes: {'; '.join(failing)}"
    if decided.verdict == Verdict.REFUTED:
        return decided.model_copy(update={"reason": reason})
    return decided.model_copy(update={"verdict": Verdict.REFUTED.value, "route": "probe", "reason": reason})


def _decided(cell: Cell, bout: Bout, contest: Contest, store: Store, *, broken: bool) -> Record:
    finding, measured = bout.decided, bout.decided.measurement
    if measured is None:
        raise ValueError(f"nothing was measured of {cell.title}: {finding.reason}")
    if broken and not contest.visible:
        finding = replace(finding, reason=f"{finding.reason}; no planned number of trials shows this bug on a canary")
    arrays = {
        "member": bout.scores.member,
        "nonmember": bout.scores.nonmember,
        "threshold": measured.threshold,
        "fpr_high": measured.fpr_high,
        "fnr_high": measured.fnr_high,
        "alpha": measured.alpha,
    }
    planned = f"{contest.plan.trials} a seed planned for power {contest.plan.power:.3g}" if broken else "as its mutant"
    return cell.record(
        metric="epsilon_low",
        value=measured.epsilon_low,
        ci_low=measured.epsilon_low,
        ci_level=1 - measured.alpha,
        ci_method=f"{measured.estimator}, one-sided, {measured.threshold_policy}",
        ceiling=measured.ceiling,
        detectable=measured.detectable,
        verdict=finding.verdict.value,
        route=finding.route or ("eps_low" if contest.mutant.claim.curve is None else "curve"),
        reason=f"{finding.reason}; trials: {planned}, refuted in {bout.refuted} of {len(bout.each)} seeds; "
        f"witness: {measured.witness}",
        n=min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=store.save_arrays(cell.cell_id, "scores", {key: np.asarray(value) for key, value in arrays.items()}),
    )


def _trials(finding: Finding) -> int | None:
    return None if finding.measurement is None else finding.measurement.n0
