"""Find mechanisms and protections with a planted bug (mutants) by name, and write the result rows of their audits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ...audit.check import CheckResult
from ...audit.finding import Finding, Verdict, checked_alone, with_failed_checks
from ...audit.wording import nearest
from ...defenses.controls.fault import Mutant
from ..attacking.finished_cells import Clock, failures_as_rows
from ..config.catalogue import find, from_entry_points
from ..config.part_listing import control_kind, controls, correct_cases, faults, mechanism_faults
from ..config.source import ConfigError
from ..config.tables.suite import MutantsSpec
from ..results.cell import Cell, check_rows, verdict_row
from ..results.record import Record
from ..results.store import Store
from ..vertical.runs import DependentRuns
from .mutant_audit import MutantAudit, VersionFindings, audit_broken, audit_correct, plan_mutant_audit
from .versions import Versions, mechanism_versions, versions_of
from .vertical_mutant import vertical_versions
from .vote_mutant import vote_versions

MECHANISM, FEDERATION, PAIR, CORRECT_CASE = "mechanism", "federation", "pair", "correct case"
VERTICAL, TRANSFER = "vertical federation", "transfer"
_PREPARED: dict[str, Callable[[Any], Versions]] = {
    MECHANISM: mechanism_versions,
    FEDERATION: versions_of,
    PAIR: versions_of,
    CORRECT_CASE: versions_of,
    VERTICAL: vertical_versions,
    TRANSFER: vote_versions,
}
"""How both versions of a control or a case are prepared, by kind. A new kind of federation is a line here."""


def known_mutants() -> dict[str, str]:
    """Return a dictionary from the name of every mutant (planted bug) to its kind. The kinds are: a mechanism of its
    own, a broken defense in a federation of clients, in a vertical federation or in a transfer, a pair of versions of a
    protection, and a correct case, which has no bug.
    """
    # Controls of other packages are mutants too: they are found by their entry points.
    foreign = {name: control_kind(part) for name, part in from_entry_points("defense").items() if part.control}
    own = {name: kind for name, (kind, _) in controls().items()}
    known = dict.fromkeys(mechanism_faults(), MECHANISM) | own | foreign
    return known | dict.fromkeys(faults(), PAIR) | dict.fromkeys(correct_cases(), CORRECT_CASE)


def chosen_mutants(spec: MutantsSpec) -> dict[str, str]:
    """Return a dictionary from the names of the chosen mutants (planted bugs) to their kinds. If ``only`` is empty, all
    are chosen, except: mechanisms and transfers, whose bugs need trials, if there are no trials; and correct cases if
    the settings leave them out. An unknown name raises ConfigError.
    """
    known = known_mutants()
    for name in spec.only:
        if name not in known:
            raise ConfigError(f"unknown mutant {name!r}; known: {nearest(name, known)}")
    left_out = {MECHANISM: not spec.trials, TRANSFER: not spec.trials, CORRECT_CASE: not spec.correct_cases}
    return {name: known[name] for name in spec.only or known if not left_out.get(known[name], False)}


# Cached: planning and the run both need the mutant, and one of a vertical federation learns its scores.
@lru_cache(maxsize=256)
def build_mutant(name: str) -> Mutant:
    """Return the mutant (a mechanism with a planted bug) of the given name, ready to be audited by trials.

    Raises:
        ValueError: for a control that has no correct version to be compared with, and where no canary covers it.
    """
    return versions(name).mutant()


def versions(name: str) -> Versions:
    """Return both versions of a mutant, prepared for their federation if they belong to one."""
    kind, found = known_mutants()[name], class_of(name)
    return _PREPARED[kind](found if kind in (PAIR, CORRECT_CASE) else found())


def class_of(name: str) -> type[Any]:
    """Return the class that plants the mutant's bug and describes the real bug that it imitates."""
    part = (mechanism_faults() | faults() | correct_cases()).get(name)
    return find("defense", name) if part is None else part.load()


@dataclass(frozen=True, kw_only=True)
class MutantJob:
    """A job that audits one mutant (a mechanism with a planted bug) and its correct version.

    Args:
        alpha: level of all tests of the correct version together.
        broken, correct: cells of the two versions; an unusual correct case has no broken one.
    """

    name: str
    spec: MutantsSpec
    seeds: tuple[int, ...]
    alpha: float
    # Two cells but one job: the pilot that plans the audit of both versions then runs once.
    broken: Cell | None
    correct: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The units of work of this job: the audits of the broken version, if any, and of the correct one."""
        return (self.correct,) if self.broken is None else (self.broken, self.correct)

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        """Audit the broken and the correct version of a mutant, and write the result rows; return a description of each
        failure.

        Raises:
            UnwritableRunFolder: if the folder cannot be written.
        """
        wanted = [cell for cell in self.cells if cell.cell_id not in finished]
        if not wanted:
            return []
        # Processes share the cores: more threads in each would slow all of them down.
        torch.set_num_threads(1)
        kind, clock = known_mutants()[self.name], Clock()
        with failures_as_rows(wanted, store, clock) as failed:
            checks = {cell.cell_id: _checks(self, cell) for cell in self.cells}
            audit = _audit(self, kind, checks)
            for cell in wanted:
                rows = _rows(cell, self, audit, checks[cell.cell_id], store)
                store.finish(cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
                # The next version's rows must not count this one's time.
                clock = Clock()
        return failed


def _checks(job: MutantJob, cell: Cell) -> tuple[CheckResult, ...]:
    broken = cell is job.broken
    return versions(job.name).checks(broken=broken, trials=job.spec.trials or broken)


def _audit(job: MutantJob, kind: str, checks: Mapping[str, tuple[CheckResult, ...]]) -> MutantAudit | None:
    """The planned trials; None where checks alone decide."""
    spec, broken = job.spec, job.broken
    if not spec.trials or broken is None:
        return None
    # Trials cost minutes, and a pair that a check has refuted needs none.
    if kind == PAIR and any(check.passed is False for check in checks[broken.cell_id]):
        return None
    try:
        mutant = build_mutant(job.name)
    except DependentRuns:
        # Trials of them would prove nothing, and a check says so.
        return None
    except ValueError:
        # A claim that no canary covers, or without a law, is left to the checks; a control must have both.
        if kind != PAIR:
            raise
        return None
    return plan_mutant_audit(
        mutant,
        name=job.name,
        pilot=spec.pilot if kind in (MECHANISM, TRANSFER) else spec.pilot_federations,
        power=spec.power,
        alpha=spec.kill_alpha,
        limit=spec.limit_pairs if kind in (PAIR, VERTICAL) else spec.limit,
    )


def _rows(
    cell: Cell, job: MutantJob, audit: MutantAudit | None, checks: Sequence[CheckResult], store: Store
) -> list[Record]:
    """One row per seed that states whether its trials alone refute, one row per check, and the row that decides."""
    failing = [check.words for check in checks if check.passed is False]
    if audit is None:
        finding = checked_alone(versions(job.name).claim, failing)
        verdict = {"verdict": finding.verdict.value, "route": finding.route, "reason": finding.reason}
        return [*check_rows(cell, checks), cell.record(metric="epsilon_low", **verdict)]
    broken = cell is job.broken
    audit_version, alpha = (audit_broken, job.spec.kill_alpha) if broken else (audit_correct, job.alpha)
    found = audit_version(audit, name=job.name, seeds=job.seeds, alpha=alpha)
    each = [
        cell.record(
            **{"role": "replicas", "seed": seed},
            metric="refuted",
            value=float(finding.verdict is Verdict.REFUTED),
            n=_trials(finding),
            unit="whether the trials of this seed refute the claim",
        )
        for seed, finding in zip(job.seeds, found.each, strict=True)
    ]
    return [*each, *check_rows(cell, checks), _decided(cell, found, audit, store, broken=broken, failing=failing)]


def _decided(
    cell: Cell, found: VersionFindings, audit: MutantAudit, store: Store, *, broken: bool, failing: Sequence[str]
) -> Record:
    measured = found.decided.measurement
    if measured is None:
        raise ValueError(f"the audit of {cell.title} measured nothing: {found.decided.reason}")
    planned = (
        f"{audit.plan.trials} per seed, planned for power {audit.plan.power:.3g}" if broken else "as for the mutant"
    )
    trials = f"trials: {planned}, refuted in {found.refuted} of {len(found.each)} seeds"
    unseen = "; no number of trials that can be planned shows this fault" if broken and not audit.visible else ""
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
    artifact = store.save_arrays(cell.cell_id, "scores", {key: np.asarray(value) for key, value in arrays.items()})
    return verdict_row(cell, finding, (), artifact)


def _trials(finding: Finding) -> int | None:
    return None if finding.measurement is None else finding.measurement.n0
