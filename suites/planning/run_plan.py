"""List all work of a suite, and calibrate every defense before anything runs."""

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from ..attacking.finished_cells import Job
from ..attacking.jobs import OtherAuditJob, TrainingJob
from ..attacking.shadows import ShadowJob
from ..attacking.trial import TrialJob
from ..audits.audit_method import BlockJob, PlannedAudit
from ..config.catalogue import tables_with_parts
from ..config.compatibility import check_candidates
from ..config.recorded import recording_of
from ..config.resolve import ResolvedSuite, audit_task_of, check_executor, identity, set_up
from ..config.source import ConfigError
from ..config.tables.suite import FederationSpec
from ..mutation.mutants import MutantJob
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim
from .plan_audits import AuditPlanner, own_part, shadow_jobs
from .plan_cells import ClientKind, outside_facts, part_facts
from .plan_mutants import mutant_versions, plan_mutants
from .plan_other import TransferKind, VerticalKind


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A plan of all jobs, audits and claims of a run.

    ``run_id`` is the identity of all that determines its results, ``settings_id`` that of the suite and the seeds
    alone, without data and the code of parts.
    """

    run_id: str
    settings_id: str
    trials: tuple[TrialJob, ...]
    shadows: tuple[ShadowJob, ...]
    blocks: tuple[BlockJob, ...]
    mutants: tuple[MutantJob, ...]
    others: tuple[TrainingJob | OtherAuditJob, ...]
    audits: tuple[PlannedAudit, ...]
    claims: tuple[PlannedClaim, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that depend on no other job, longest first, so that the processes finish at about the same time.
        Only the runs of sequential audits after their first look (interim test) are left out.
        """
        first = (block for block in self.blocks if not block.stage)
        return (*self.mutants, *self.others, *first, *self.shadows, *self.trials)

    @property
    def stages(self) -> int:
        """The largest number of looks (interim tests) of any sequential audit; 1 if no audit is sequential."""
        return max((len(audit.looks) for audit in self.audits), default=0) or 1

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells of the run, which are the smallest units of work that are stored and resumed."""
        later = (block.cell for block in self.blocks if block.stage)
        return (*(cell for job in self.jobs for cell in job.cells), *later, *(audit.cell for audit in self.audits))


class _Planner:
    """Plans the cells of a resolved suite."""

    def __init__(self, suite: ResolvedSuite) -> None:
        self.suite = suite
        settings: dict[str, Any] = {
            # The margins by which a run is judged later do not change its rows.
            "suite": suite.spec.model_dump(mode="json", exclude={"gate"}),
            "seeds": list(suite.seeds),
        }
        self.settings_id = identity(**settings)
        self.run_id = identity(
            **settings,
            defenses=[(entry.label, *part_facts(entry)) for entry in suite.defenses],
            attacks=[(entry.label, entry.part.path, entry.part.version) for entry in suite.attacks],
            data=suite.digests,
            mutants=sorted(mutant_versions(suite.spec)),
            **outside_facts(*tables_with_parts(suite.spec).values()),
        )
        self.clients = ClientKind(suite, self.run_id)

    def plan(self) -> RunPlan:
        self._check_federations()
        cases = self.clients.cases()
        trials = tuple(self.clients.trial(*one) for one in cases)
        shadows = tuple(
            job
            for trial, one in zip(trials, cases, strict=True)
            for job in shadow_jobs(trial, self.clients.claims(*one))
        )
        audits = AuditPlanner(clients=self.clients).plan(shadows)
        mutants = plan_mutants(self.suite, self.run_id)
        others = [kind(self.suite, self.run_id) for kind in (VerticalKind, TransferKind)]
        return RunPlan(
            run_id=self.run_id,
            settings_id=self.settings_id,
            trials=tuple(own for trial in trials if (own := own_part(trial)).cells),
            shadows=shadows,
            blocks=tuple(block for audit in audits for block in audit.blocks),
            mutants=tuple(job for job, _ in mutants),
            others=tuple(chain(*(kind.audits() for kind in others), *(kind.trials() for kind in others))),
            audits=audits,
            claims=tuple(
                chain(
                    self.clients.stated(),
                    *(kind.stated() for kind in others),
                    *(both for _, both in mutants),
                )
            ),
        )

    def _check_federations(self) -> None:
        """ConfigError for a federation that cannot be set up, or one without enough candidates for an attack.

        A federation that borrows its calibration would otherwise fail while it runs, and an attack after the training.
        """
        mistakes = list[str]()
        for name, spec in self.suite.spec.federations.items():
            try:
                self._check_federation(name, spec)
            except ConfigError as error:
                mistakes += error.args
        if mistakes:
            raise ConfigError(*mistakes)

    def _check_federation(self, name: str, spec: FederationSpec) -> None:
        if spec.recording is not None:  # Before its task, which may have been built before the recording changed.
            set_up(self.suite, "federations", name, partial(recording_of, spec))
        seed, audit = self.suite.seeds[0], self.suite.spec.audit
        task = self.suite.task(name, seed)
        place = self.suite.source.where(("federations", name, "executor"))
        check_executor(spec, task.network, place)
        if audit is not None and audit.federation == name:
            key = ("audit", "model" if audit.dataset is None else "dataset")
            used = set_up(self.suite, "federations", name, partial(audit_task_of, spec, audit, seed), key)
            check_executor(spec, used.network, place)
        for entry in self.suite.attacks:
            # Attacks on shadow federations score every sample, and choose no candidates. Of a recording without a truth
            # no sample is known.
            if name in entry.federations and entry.shadows is None and len(task.outsider_labels):
                place = self.suite.source.where(("attacks", entry.label, "count"))
                check_candidates(entry.attack, task, seed, f"{place}: attack {entry.label} on federation {name}")


def plan_run(suite: ResolvedSuite) -> RunPlan:
    """Plan all work of a run, and calibrate every defense for it.

    Raises:
        ConfigError: for a federation that cannot be set up, a defense that does not fit it, or an unknown mutant.
    """
    return _Planner(suite).plan()
