"""Find mechanisms and defenses with a planted bug (mutants) by name, and write the result rows of their audits."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType

import numpy as np
import torch

from ...audit.finding import Finding, Verdict, with_failed_checks
from ...audit.nearest import nearest
from ...defenses import controls as controlled
from ...defenses.controls import mechanisms
from ...defenses.controls.mutant import Mutant
from ..attacking.trial import Clock, failures_as_rows
from ..checks.check import check_rows
from ..config.catalogue import find, from_entry_points
from ..config.part_files import own_parts
from ..config.source import ConfigError
from ..jobs.cell import Cell
from ..jobs.mutant_job import MutantJob
from ..results.record import Record
from ..results.store import Store
from .federated_mutant import checks_of, federated_mutant
from .mutant_audit import MutantAudit, VersionFindings, audit_broken, audit_correct, plan_mutant_audit

MECHANISM, FEDERATION = "mechanism", "federation"


def known_mutants() -> dict[str, str]:
    """Return a dictionary from the name of every mutant (planted bug) to its kind: a mechanism of its own, or a broken
    defense in a federation.
    """
    own = {
        entry.name: MECHANISM
        for entry in pkgutil.iter_modules(mechanisms.__path__)
        if hasattr(importlib.import_module(f"{mechanisms.__name__}.{entry.name}"), "mutant")
    }
    controls = [
        name for name, part in own_parts("defense").items() if part.module.startswith(f"{controlled.__name__}.")
    ]
    # Controls of other packages are mutants too: they are found by their entry points.
    foreign = [name for name, part in from_entry_points("defense").items() if part.control]
    return own | dict.fromkeys([*controls, *foreign], FEDERATION)


def chosen_mutants(only: tuple[str, ...]) -> dict[str, str]:
    """Return a dictionary from the names of the chosen mutants (planted bugs) to their kinds. If ``only`` is empty, all
    are chosen; an unknown name raises ConfigError.
    """
    known = known_mutants()
    for name in only:
        if name not in known:
            raise ConfigError(f"unknown mutant {name!r}; known: {nearest(name, known)}")
    return {name: known[name] for name in only or known}


# Cached: planning and the run both need the mutant, and a federated one loads data.
@lru_cache(maxsize=64)
def build_mutant(name: str) -> Mutant:
    """Return the mutant (a mechanism with a planted bug) of the given name, ready to be audited.

    Raises:
        ValueError: for a control that has no correct version to be compared with.
    """
    if known_mutants()[name] == FEDERATION:
        return federated_mutant(find("defense", name)())
    build: Callable[[], Mutant] = module_of(name).mutant
    return build()


def module_of(name: str) -> ModuleType:
    """Return the module that plants the mutant's bug and describes the real bug that it imitates."""
    if known_mutants()[name] == FEDERATION:
        return importlib.import_module(find("defense", name).__module__)
    return importlib.import_module(f"{mechanisms.__name__}.{name}")


def run_mutant(job: MutantJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Audit the broken and the correct version of a mutant, and write the result rows; return a description of each
    failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    wanted = [cell for cell in job.cells if cell.cell_id not in finished]
    if not wanted:
        return []
    # Processes share the cores: more threads in each would slow all of them down.
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows(wanted, store, clock) as failed:
        spec = job.spec
        audit = plan_mutant_audit(
            build_mutant(job.name),
            name=job.name,
            pilot=spec.pilot if known_mutants()[job.name] == MECHANISM else spec.pilot_federations,
            power=spec.power,
            alpha=spec.kill_alpha,
            limit=spec.limit,
        )
        for cell in wanted:
            rows = _rows(cell, job, audit, store)
            store.finish(cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
            # The next version's rows must not count this one's time.
            clock = Clock()
    return failed


def _rows(cell: Cell, job: MutantJob, audit: MutantAudit, store: Store) -> list[Record]:
    """One row per seed that states whether its trials alone refute, one row per check, and the row that decides."""
    broken = cell is job.broken
    audit_version, alpha = (audit_broken, job.spec.kill_alpha) if broken else (audit_correct, job.alpha)
    found = audit_version(audit, name=job.name, seeds=job.seeds, alpha=alpha)
    each = [
        cell.record(
            **{"role": "replicas", "seed": seed},
            metric="refuted",
            value=float(finding.verdict is Verdict.REFUTED),
            n=_trials(finding),
            unit="whether this seed's trials refute",
        )
        for seed, finding in zip(job.seeds, found.each, strict=True)
    ]
    # A mechanism has no federation to replay.
    federated = known_mutants()[job.name] == FEDERATION
    checks = checks_of(find("defense", job.name)(), broken=broken) if federated else ()
    failing = [check.words for check in checks if check.passed is False]
    return [*each, *check_rows(cell, checks), _decided(cell, found, audit, store, broken=broken, failing=failing)]


def _decided(
    cell: Cell, found: VersionFindings, audit: MutantAudit, store: Store, *, broken: bool, failing: Sequence[str]
) -> Record:
    measured = found.decided.measurement
    if measured is None:
        raise ValueError(f"the audit of {cell.title} measured nothing: {found.decided.reason}")
    planned = f"{audit.plan.trials} a seed planned for power {audit.plan.power:.3g}" if broken else "as for the mutant"
    trials = f"trials: {planned}, refuted in {found.refuted} of {len(found.each)} seeds; evidence: {measured.witness}"
    unseen = "; no planned number of trials shows this bug on a canary" if broken and not audit.visible else ""
    finding = replace(found.decided, reason=f"{found.decided.reason}{unseen}; {trials}")
    # Last, since a bug that canaries cannot show may still be refuted by a check.
    finding = with_failed_checks(finding, failing)
    arrays = {
        "member": found.scores.member,
        "nonmember": found.scores.nonmember,
        "threshold": measured.threshold,
        "fpr_high": measured.fpr_high,
        "fnr_high": measured.fnr_high,
        "alpha": measured.alpha,
    }
    return cell.record(
        metric="epsilon_low",
        value=measured.epsilon_low,
        ci_low=measured.epsilon_low,
        ci_level=1 - measured.alpha,
        ci_method=f"{measured.estimator}, one-sided, {measured.threshold_policy}",
        ceiling=measured.ceiling,
        detectable=measured.detectable,
        verdict=finding.verdict.value,
        route=finding.route or ("eps_low" if audit.mutant.claim.curve is None else "curve"),
        reason=finding.reason,
        n=min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=store.save_arrays(cell.cell_id, "scores", {key: np.asarray(value) for key, value in arrays.items()}),
    )


def _trials(finding: Finding) -> int | None:
    return None if finding.measurement is None else finding.measurement.n0
