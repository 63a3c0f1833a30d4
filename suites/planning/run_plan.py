"""Run plan: a resolved suite laid out in cells, every defense calibrated on the way; nothing has run yet."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...audit.observer import FINAL_MODEL
from ...defenses.defense import Prepared, variant_of
from ...fl.plan import marks
from ..config.canaries import why_not_covered
from ..config.identity import identity
from ..config.resolve import AttackEntry, DefenseEntry, ResolvedSuite, audited, prepare, task_of
from ..config.source import ConfigError
from ..config.suite import AuditSpec, FederationSpec, PlanChange
from ..jobs.audited_federation import inseparable
from ..jobs.cells import (
    AttackAudit,
    AttackCell,
    AuditCell,
    BlockJob,
    Cell,
    Job,
    MutantJob,
    PlannedClaim,
    ShadowJob,
    TrialJob,
)
from ..jobs.crafted_reports import report_law, spent_on, untried
from ..jobs.queried_lots import audited_law
from .plan_cells import CellMaker, part_facts
from .plan_mutants import mutant_versions, plan_mutants
from .plan_shadows import Hearing, hearings, own_part, shadow_jobs


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """All that a run will do."""

    run_id: str
    trials: tuple[TrialJob, ...]
    shadows: tuple[ShadowJob, ...]
    blocks: tuple[BlockJob, ...]
    mutants: tuple[MutantJob, ...]
    audits: tuple[AuditCell, ...]
    by_attacks: tuple[AttackAudit, ...]
    claims: tuple[PlannedClaim, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Work for the processes, the longest first."""
        return (*self.mutants, *self.blocks, *self.shadows, *self.trials)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell of the run."""
        worked = [cell for job in self.jobs for cell in job.cells]
        return (*worked, *(audit.cell for audit in self.audits), *(audit.cell for audit in self.by_attacks))


class _Planner:
    """Lays a resolved suite out in cells."""

    def __init__(self, suite: ResolvedSuite) -> None:
        self.suite = suite
        self.prepared: dict[tuple[str, str, int], Prepared] = {}
        self.run_id = identity(
            # By what margins a run is judged later is no part of it.
            suite=suite.spec.model_dump(mode="json", exclude={"gate"}),
            seeds=list(suite.seeds),
            defenses=[(entry.label, *part_facts(entry)) for entry in suite.defenses],
            attacks=[(entry.label, entry.part.path, entry.part.version) for entry in suite.attacks],
            data=suite.digests,
            mutants=sorted(mutant_versions(suite.spec)),
        )
        self._cell = CellMaker(suite=suite, run_id=self.run_id).cell

    def plan(self) -> RunPlan:
        self._check_federations()
        asked = [
            (entry, name, seed)
            for name in self.suite.spec.federations
            for entry in self._on(name)
            for seed in self._seeds(entry)
        ]
        trials = tuple(self._trial(*one) for one in asked)
        shadows = tuple(
            job for trial, one in zip(trials, asked, strict=True) for job in shadow_jobs(trial, self._signed(*one))
        )
        (audits, by_attacks), mutants = self._audits(shadows), plan_mutants(self.suite, self.run_id)
        return RunPlan(
            run_id=self.run_id,
            trials=tuple(own for trial in trials if (own := own_part(trial)).cells),
            shadows=shadows,
            blocks=tuple(block for audit in audits for block in audit.blocks),
            mutants=tuple(job for job, _ in mutants),
            audits=audits,
            by_attacks=by_attacks,
            claims=(*self._claims(), *(signed for _, both in mutants for signed in both)),
        )

    def _check_federations(self) -> None:
        """Those that borrow their calibration are first set up when they run: better told before."""
        for name, spec in self.suite.spec.federations.items():
            try:
                task_of(spec, self.suite.seeds[0])
            except ValueError as error:
                raise ConfigError(f"federation {name} cannot be set up: {error}") from error

    def _on(self, federation: str) -> list[DefenseEntry]:
        """The defenses that run there: those that name it, or where none does all that name no other. One that borrows
        its calibration shows those of the federation it borrows of.
        """
        own = self.suite.spec.federations[federation].calibrated_on or federation
        chosen = [entry for entry in self.suite.defenses if entry.federation == own]
        return chosen or [entry for entry in self.suite.defenses if entry.federation is None]

    def _seeds(self, entry: DefenseEntry) -> tuple[int, ...]:
        """Those that it runs on."""
        return self.suite.seeds[: entry.seeds]

    def _prepare(self, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
        key = (entry.label, federation, seed)
        if key not in self.prepared:
            self.prepared[key] = prepare(self.suite, entry, federation, seed)
        return self.prepared[key]

    def _trial(self, entry: DefenseEntry, name: str, seed: int) -> TrialJob:
        spec = self.suite.spec.federations[name]
        attacks = tuple(
            self._attack(entry, name, seed, attack) for attack in self.suite.attacks if name in attack.federations
        )
        training = None
        if spec.calibrated_on is None:
            training = self._cell(entry, name, seed, role="utility", attack="training", attack_version="1")
        return TrialJob(
            federation=spec,
            change=self._change(entry, spec),
            protection=self._prepare(entry, name, seed).protection,
            seed=seed,
            training=training,
            attacks=attacks,
            device=self.suite.spec.device,
        )

    def _attack(self, entry: DefenseEntry, federation: str, seed: int, attack: AttackEntry) -> AttackCell:
        cell = self._cell(
            entry,
            federation,
            seed,
            role="null" if attack.attack.null else "attack",
            attack=attack.label,
            attack_version=attack.part.version,
            observer=str(attack.observer),
            configuration=attack.configuration,
        )
        return AttackCell(cell=cell, entry=attack)

    def _claims(self) -> list[PlannedClaim]:
        claims: dict[tuple[str, str, str], PlannedClaim] = {}
        for name in self.suite.spec.federations:
            for entry in self._on(name):
                for seed in self._seeds(entry):
                    spending = self._prepare(entry, name, seed).spending
                    for claim in self._signed(entry, name, seed):
                        signed = PlannedClaim(
                            defense=entry.label,
                            federation=name,
                            control=entry.defense.control,
                            claim=claim,
                            variant=variant_of(entry.defense),
                            marks=marks(self.suite.spec.federations[name].rounds),
                            spending=spending.get(claim.claim_id),
                        )
                        claims.setdefault((entry.label, name, claim.claim_id), signed)
        return list(claims.values())

    def _signed(self, entry: DefenseEntry, federation: str, seed: int) -> tuple[Claim, ...]:
        """What is claimed of this federation's own plan."""
        borrowed = self.suite.spec.federations[federation].calibrated_on is not None
        return () if borrowed else tuple(self._prepare(entry, federation, seed).claims)

    def _audits(self, shadows: tuple[ShadowJob, ...]) -> tuple[tuple[AuditCell, ...], tuple[AttackAudit, ...]]:
        """By canaries and by attacks: each is a test of its own, also where both are of one claim."""
        audit, claims = self.suite.spec.audit, self._claims()
        entries = {entry.label: entry for entry in self.suite.defenses}
        specs = {} if audit is None else {label: _audit_of(entry, audit) for label, entry in entries.items()}
        signed = [item for item in claims if specs and item.federation == specs[item.defense].federation]
        asked = [(entries[item.defense], item.claim, spent_on(item.claim, specs[item.defense])) for item in signed]
        beyond, heard = [self._beyond(*one) for one in asked], hearings(claims, shadows)
        alpha = self.suite.spec.alpha / max(1, beyond.count("") + len(heard))
        by_canaries = tuple(self._audit(*one, alpha, why) for one, why in zip(asked, beyond, strict=True))
        return by_canaries, tuple(self._by_attacks(entries[one.signed.defense], one, alpha) for one in heard)

    def _by_attacks(self, entry: DefenseEntry, heard: Hearing, alpha: float) -> AttackAudit:
        cell = self._cell(
            entry,
            heard.signed.federation,
            heard.seed,
            role="evidence",
            attack="membership",
            attack_version="1",
            observer=str(FINAL_MODEL),
            claim_id=heard.signed.claim.claim_id,
            configuration=[alpha, [item.cell.cell_id for item in heard.attacks]],
        )
        return AttackAudit(
            cell=cell,
            claim=heard.signed.claim,
            setting=heard.setting,
            attacks=heard.attacks,
            candidates=heard.candidates,
            seed=heard.seed,
            alpha=alpha,
        )

    def _beyond(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec) -> str:
        """Why nothing in the suite judges this claim: no canary covers it, and no report of its own law is crafted."""
        block = self._block(entry, claim, audit, self._signing(entry, claim, audit)[0], 1)
        if audit.design != "one_run" and self._is_crafted(block, entry):
            return untried(block)
        return why_not_covered(claim) or inseparable(block)

    def _is_crafted(self, block: BlockJob, entry: DefenseEntry) -> bool:
        try:
            return report_law(block) is not None
        except ValueError as error:
            raise ConfigError(f"defense {entry.label}: {error}") from error

    def _signing(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec) -> list[int]:
        """Seeds on whose federation the defense signs this claim."""
        return [
            seed
            for seed in self._seeds(entry)
            if claim.claim_id in {other.claim_id for other in self._prepare(entry, audit.federation, seed).claims}
        ]

    def _audit(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec, alpha: float, beyond: str) -> AuditCell:
        signing = [] if beyond else self._signing(entry, claim, audit)
        whole, rest = divmod(audit.replicas, max(1, len(signing)))
        # One run is one: its theorem counts the coins of a single federation, that of the first seed.
        shares = [1] if audit.design == "one_run" else [whole + (n < rest) for n in range(len(signing))]
        blocks = tuple(
            self._block(entry, claim, audit, seed, share) for seed, share in zip(signing, shares, strict=False) if share
        )
        crafted = audit.design != "one_run" and not beyond and self._is_crafted(blocks[0], entry)
        queried = not beyond and audited_law(blocks[0]) is not None
        cell = self._cell(
            entry,
            audit.federation,
            None,
            role="audit",
            attack="crafted_reports" if crafted else "queried_lots" if queried else audit.estimator,
            attack_version="1",
            observer=str(claim.observer),
            claim_id=claim.claim_id,
            configuration=[audit.model_dump(mode="json"), alpha, [block.cell.cell_id for block in blocks]],
            measured_on=None if crafted or queried else audited(self.suite.spec.federations[audit.federation], audit),
        )
        return AuditCell(cell=cell, claim=claim, blocks=blocks, alpha=alpha, beyond=beyond)

    def _block(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec, seed: int, replicas: int) -> BlockJob:
        spec = self.suite.spec.federations[audit.federation]
        cell = self._cell(
            entry,
            audit.federation,
            seed,
            role="replicas",
            attack="canary",
            attack_version="1",
            observer=str(claim.observer),
            claim_id=claim.claim_id,
            configuration=[audit.model_dump(mode="json"), replicas],
            measured_on=audited(spec, audit),
        )
        return BlockJob(
            federation=spec,
            change=self._change(entry, spec),
            audit=audit,
            protection=self._prepare(entry, audit.federation, seed).protection,
            claim=claim,
            seed=seed,
            replicas=replicas,
            cell=cell,
        )

    def _change(self, entry: DefenseEntry, spec: FederationSpec) -> PlanChange:
        """What the defense changes of the plan; nothing where this federation only shows one upload."""
        return entry.change if spec.calibrated_on is None else PlanChange()


def _audit_of(entry: DefenseEntry, audit: AuditSpec) -> AuditSpec:
    """The suite's audit, where and as often as the defense asks for it."""
    wished = {"federation": entry.federation, "replicas": entry.replicas}
    return audit.model_copy(update={name: value for name, value in wished.items() if value is not None})


def plan_run(suite: ResolvedSuite) -> RunPlan:
    """Lay out every cell of a run; calibrates every defense on the way."""
    return _Planner(suite).plan()
