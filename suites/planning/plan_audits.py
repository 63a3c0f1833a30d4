"""Choose for each stated privacy claim the audit method, its share of the error rate alpha, and the runs to make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from ...audit.claim import Claim
from ...audit.power import Look, planned_looks
from ..attacking.shadows import ShadowJob
from ..attacking.trial import TrialJob
from ..audits.audit_method import (
    AttackedFederation,
    AttackMethod,
    BlockJob,
    BlockMethod,
    PlannedAudit,
    attack_methods,
    chosen_method,
)
from ..audits.case import Case
from ..config.resolve import DefenseEntry, audited, task_of
from ..config.source import ConfigError
from ..config.tables.suite import AuditSpec
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim
from .plan_cells import ClientKind, change_of


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """A claim, and the method that audits it on these seeds; ``out_of_scope``: why it cannot, empty where it can."""

    entry: DefenseEntry
    claim: Claim
    audit: AuditSpec
    method: BlockMethod
    seeds: tuple[int, ...]
    out_of_scope: str


@dataclass(frozen=True, kw_only=True)
class AuditPlanner:
    """A planner of all audits of a suite. An audit either runs trials of its own with and without a canary, or uses the
    results of the suite's membership attacks on shadow federations.
    """

    clients: ClientKind

    def plan(self, shadows: tuple[ShadowJob, ...]) -> tuple[PlannedAudit, ...]:
        """Plan all audits. The audits share alpha equally, and two audits of one claim count as separate tests."""
        claims = self.clients.stated()
        entries = {entry.label: entry for entry in self.clients.suite.defenses}
        chosen = self._chosen(claims, entries)
        attacked = [
            (item, method, found)
            for item in claims
            for method in attack_methods()
            if (found := attacked_federation(item, shadows, method)) is not None
        ]
        # A claim out of scope is not tested, and takes no share of alpha from the others.
        tested = sum(not one.out_of_scope for one in chosen) + len(attacked)
        alpha = self.clients.suite.spec.alpha_of_kind / max(1, tested)
        enough = (replace(one, audit=one.method.enough(one.claim, one.audit, alpha)) for one in chosen)
        own = [self._by_runs(one, alpha) for one in enough]
        by_attacks = [
            self._by_attacks(entries[item.defense], item, method, found, alpha) for item, method, found in attacked
        ]
        return (*own, *by_attacks)

    def _chosen(self, claims: list[PlannedClaim], entries: dict[str, DefenseEntry]) -> list[_Chosen]:
        """Choose a method for each claim about the federation that the audit table, or the defense, names."""
        if (audit := self.clients.suite.spec.audit) is None:
            return []
        # Each defense may name a federation and a number of replicas of its own.
        specs = {label: _audit_of(entry, audit) for label, entry in entries.items()}
        return [
            self._choose(entries[item.defense], item.claim, specs[item.defense])
            for item in claims
            if item.federation == specs[item.defense].federation
        ]

    def _choose(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec) -> _Chosen:
        seeds = tuple(
            seed
            for seed in self.clients.seeds(entry)
            if claim.claim_id in {other.claim_id for other in self.clients.of(entry, audit.federation, seed).claims}
        )
        # One method audits all seeds of a claim: that of the first seed that states it.
        try:
            method, reason = chosen_method(self._request(entry, claim, audit, seeds[0]))
        except ValueError as error:
            raise ConfigError(f"defense {entry.label}: {error}") from error
        budget = method.budget(claim, audit)
        one = _Chosen(entry=entry, claim=claim, audit=budget, method=method, seeds=seeds, out_of_scope=reason)
        return one if reason else replace(one, out_of_scope=method.unfit(self._block(one, seeds[0])))

    def _request(self, entry: DefenseEntry, claim: Claim, audit: AuditSpec, seed: int) -> Case:
        spec = self.clients.specs[audit.federation]
        return Case(
            federation=spec,
            change=change_of(entry, spec),
            audit=audit,
            protection=self.clients.of(entry, audit.federation, seed).protection,
            claim=claim,
            seed=seed,
            defense=entry.defense,
        )

    def _by_runs(self, one: _Chosen, alpha: float) -> PlannedAudit:
        looks = _looks(one, alpha)
        blocks = () if one.out_of_scope else tuple(self._blocks(one, looks))
        spec = self.clients.specs[one.audit.federation]
        cell = self.clients.cell(
            one.entry,
            one.audit.federation,
            None,
            role="audit",
            attack=one.method.attack,
            claim=one.claim,
            # Alpha is part of it: another claim in the suite changes this one's share, and with it the bound.
            configuration=[one.audit.model_dump(mode="json"), alpha, [block.cell.cell_id for block in blocks]],
            measured_on=audited(spec, one.audit) if one.method.own_federation else None,
        )
        return PlannedAudit(
            cell=cell,
            method=one.method,
            claim=one.claim,
            alpha=alpha,
            blocks=blocks,
            out_of_scope=one.out_of_scope,
            looks=looks,
            request=self._request(one.entry, one.claim, one.audit, one.seeds[0]) if one.out_of_scope else None,
        )

    def _blocks(self, one: _Chosen, looks: tuple[Look, ...]) -> Iterator[BlockJob]:
        """The runs of each stage, which lies between two looks; of each seed in turn."""
        until = [look.replicas for look in looks] or [one.audit.replicas]
        prepared = [one.method.on_its_federation(self._block(one, seed)) for seed in one.seeds]
        for stage, (before, after) in enumerate(pairwise([0, *until])):
            shares = one.method.shares(after - before, len(one.seeds))
            for block, share in zip(prepared, shares, strict=False):
                # Seeds beyond the number of replicas get none, and no block.
                if share:
                    runs, cell = one.method.runs(share), self._block_cell(one, block.seed, share, stage)
                    yield replace(block, replicas=share, runs=runs, cell=cell, stage=stage)

    def _block(self, one: _Chosen, seed: int) -> BlockJob:
        """The runs of one seed, without their number."""
        request = self._request(one.entry, one.claim, one.audit, seed)
        own = {field.name: getattr(request, field.name) for field in fields(request)}
        own |= {"inert": one.method.inert(one.audit), "device": self.clients.suite.spec.device}
        return BlockJob(**own, method=one.method, replicas=0, runs=0, cell=self._block_cell(one, seed, 0, 0))

    def _block_cell(self, one: _Chosen, seed: int, replicas: int, stage: int) -> Cell:
        return self.clients.cell(
            one.entry,
            one.audit.federation,
            seed,
            role="replicas",
            # One name whatever the method: it is part of the identity of blocks that were stored before.
            attack="canary",
            claim=one.claim,
            # Without looks there is one stage, whose blocks keep the identity of those that were stored before.
            configuration=[one.audit.model_dump(mode="json"), replicas, *([stage] if stage else [])],
            measured_on=audited(self.clients.specs[one.audit.federation], one.audit),
        )

    def _by_attacks(
        self, entry: DefenseEntry, item: PlannedClaim, method: AttackMethod, found: AttackedFederation, alpha: float
    ) -> PlannedAudit:
        cell = self.clients.cell(
            entry,
            item.federation,
            found.seed,
            role="evidence",
            attack=method.attack,
            claim=item.claim,
            observer=str(found.setting.observer),
            # Its values depend on the scores of these attacks alone.
            configuration=[alpha, [attack.cell.cell_id for attack in found.attacks]],
        )
        return PlannedAudit(cell=cell, method=method, claim=item.claim, alpha=alpha, attacked=found)


def _looks(one: _Chosen, alpha: float) -> tuple[Look, ...]:
    """The looks at a sequential audit; none for one with a single look, and for a method that cannot stop early."""
    stops = one.audit.sequential and one.method.sequential and not one.out_of_scope
    return planned_looks(one.audit.replicas, alpha) if stops else ()


def _audit_of(entry: DefenseEntry, audit: AuditSpec) -> AuditSpec:
    """The suite's audit table with the federation and the replicas that the defense names, where it does."""
    named = {"federation": entry.spec.federation, "replicas": entry.spec.replicas}
    return audit.model_copy(update={name: value for name, value in named.items() if value is not None})


def own_part(trial: TrialJob) -> TrialJob:
    """Return the job without its attacks that need shadow federations."""
    return replace(trial, attacks=tuple(item for item in trial.attacks if item.entry.shadows is None))


def shadow_jobs(trial: TrialJob, claims: Sequence[Claim]) -> list[ShadowJob]:
    """Return one job for all attacks that need the same number of shadow federations, which are trained once for all of
    them.

    Args:
        claims: those stated of the trial's plan.
    """
    # Sorted, because a set has no order and the order of the rows must not change from run to run.
    counts = sorted({item.entry.shadows for item in trial.attacks if item.entry.shadows is not None})
    return [
        ShadowJob(
            federation=trial.federation,
            change=trial.change,
            protection=trial.protection,
            claims=tuple(claims),
            seed=trial.seed,
            count=count,
            attacks=tuple(item for item in trial.attacks if item.entry.shadows == count),
            device=trial.device,
        )
        for count in counts
    ]


def attacked_federation(
    stated: PlannedClaim, jobs: Sequence[ShadowJob], method: AttackMethod
) -> AttackedFederation | None:
    """Return the shadow federation on which attacks give evidence about a claim, together with these attacks; None if
    there is none.

    The federation is that of the first seed that states the claim, so it is chosen before anything has run.
    """
    about = [job for job in jobs if _about(job) == (stated.federation, stated.defense) and _states(job, stated.claim)]
    if not about or not method.covers(stated.claim, about[0]):
        return None
    # One seed only: the theorem counts the coins of a single run.
    seed = about[0].seed
    attacks = method.registered([job for job in about if job.seed == seed])
    if not attacks:
        return None
    # Every sample of the federation is a candidate: each is a member by its own coin.
    candidates = sum(task_of(about[0].federation, seed).sizes)
    return AttackedFederation(setting=method.setting(about[0]), attacks=attacks, candidates=candidates, seed=seed)


def _about(job: ShadowJob) -> tuple[str, str]:
    facts = job.cells[0].facts
    return facts["federation"], facts["defense"]


def _states(job: ShadowJob, claim: Claim) -> bool:
    return claim.claim_id in {other.claim_id for other in job.claims}
