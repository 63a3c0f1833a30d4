"""Plan the trainings, attacks and audits of a suite's vertical federations."""

from dataclasses import dataclass
from typing import Any

from ...audit.claim import Claim
from ...audit.outside import label
from ...defenses.defense import variant_of
from ...fl.plan import marks
from ..config.identity import identity
from ..config.resolve import AttackEntry, DefenseEntry, ResolvedSuite
from ..config.resolve_vertical import prepare_vertical, vertical_attacks, vertical_defenses
from ..jobs.cell import Cell
from ..jobs.planned_claim import PlannedClaim
from ..jobs.trial_job import AttackCell
from ..jobs.vertical_job import VerticalAuditJob, VerticalTrialJob
from .plan_cells import outside_facts, part_facts

AUDIT = "vertical_runs"
"""Name of the audit in its rows."""


@dataclass(frozen=True, kw_only=True)
class VerticalWork:
    """All work on a suite's vertical federations, and the claims that are stated about them."""

    trials: tuple[VerticalTrialJob, ...]
    audits: tuple[VerticalAuditJob, ...]
    claims: tuple[PlannedClaim, ...]


def plan_vertical(suite: ResolvedSuite, run_id: str) -> VerticalWork:
    """Calibrate every defense for each vertical federation, and plan all work.

    Raises:
        ConfigError: see ``prepare_vertical``.
    """
    planner = _Planner(suite, run_id)
    cases = [(entry, name) for name in suite.spec.vertical for entry in vertical_defenses(suite, name)]
    trials = tuple(planner.trial(entry, name, seed) for entry, name in cases for seed in suite.seeds[: entry.seeds])
    audited = [
        (entry, name, claim)
        for entry, name in cases
        if suite.spec.vertical[name].audit is not None
        for claim in planner.claims(entry, name)
    ]
    # Where federations of clients are audited too, each kind has half of the error rate.
    alpha = suite.spec.alpha * (0.5 if suite.spec.audit is not None else 1.0) / max(1, len(audited))
    return VerticalWork(
        trials=trials,
        audits=tuple(planner.audit(*one, alpha) for one in audited),
        claims=tuple(
            planner.stated(entry, name, claim) for entry, name in cases for claim in planner.claims(entry, name)
        ),
    )


class _Planner:
    """Plans the cells of one suite's vertical federations."""

    def __init__(self, suite: ResolvedSuite, run_id: str) -> None:
        self.suite, self.run_id = suite, run_id
        self.prepared: dict[tuple[str, str, int], Any] = {}

    def of(self, entry: DefenseEntry, name: str, seed: int) -> Any:
        key = (entry.label, name, seed)
        if key not in self.prepared:
            self.prepared[key] = prepare_vertical(self.suite, entry, name, seed)
        return self.prepared[key]

    def claims(self, entry: DefenseEntry, name: str) -> tuple[Claim, ...]:
        # The plan is that of every seed: its number of people and its network follow from the data set's shape.
        return tuple(self.of(entry, name, self.suite.seeds[0])[1].claims)

    def stated(self, entry: DefenseEntry, name: str, claim: Claim) -> PlannedClaim:
        plan, prepared = self.of(entry, name, self.suite.seeds[0])
        return PlannedClaim(
            defense=entry.label,
            federation=name,
            control=entry.part.instance.control,
            claim=claim,
            variant=variant_of(entry.part.instance),
            marks=marks(plan.epochs),
            spending=prepared.spending.get(claim.claim_id),
        )

    def trial(self, entry: DefenseEntry, name: str, seed: int) -> VerticalTrialJob:
        _, prepared = self.of(entry, name, seed)
        training = self._cell(entry, name, seed, role="utility", attack="training", attack_version="1")
        return VerticalTrialJob(
            federation=self.suite.spec.vertical[name],
            prepared=prepared,
            seed=seed,
            training=training,
            attacks=tuple(self._attack(entry, name, seed, attack) for attack in vertical_attacks(self.suite, name)),
        )

    def audit(self, entry: DefenseEntry, name: str, claim: Claim, alpha: float) -> VerticalAuditJob:
        cell = self._cell(
            entry,
            name,
            None,
            role="audit",
            attack=AUDIT,
            attack_version="1",
            observer=str(claim.observer),
            claim_id=claim.claim_id,
            configuration=[alpha, list(self.suite.seeds[:1])],
        )
        return VerticalAuditJob(
            federation=self.suite.spec.vertical[name],
            defense=entry.part.instance,
            claim=claim,
            seed=self.suite.seeds[0],
            alpha=alpha,
            cell=cell,
        )

    def _attack(self, entry: DefenseEntry, name: str, seed: int, attack: AttackEntry) -> AttackCell:
        part = attack.part.instance
        cell = self._cell(
            entry,
            name,
            seed,
            role="null" if part.null else "attack",
            attack=attack.label,
            attack_version=attack.part.version,
            observer=str(part.observer),
            configuration=attack.configuration,
        )
        return AttackCell(cell=cell, entry=attack)

    def _cell(
        self, entry: DefenseEntry, name: str, seed: int | None, *, configuration: Any = None, **facts: Any
    ) -> Cell:
        """One cell; its id is a hash of everything that determines its rows."""
        spec = self.suite.spec.vertical[name]
        data = label("dataset", spec.dataset)
        digest = self.suite.digests[data]
        cell_id = identity(
            names=[name, entry.label],
            vertical=spec.model_dump(mode="json"),
            data=digest,
            defense=part_facts(entry),
            seed=seed,
            configuration=configuration,
            executor="sequential",
            **outside_facts(spec),
            **facts,
        )
        shared = {
            "run_id": self.run_id,
            "suite": self.suite.spec.name,
            "suite_version": self.suite.spec.version,
            "federation": name,
            "dataset": data,
            "dataset_sha256": digest,
            "model": _model_words(spec.hidden, spec.top_hidden, spec.summed),
            "defense": entry.label,
            "defense_version": entry.part.version,
            "control": entry.part.instance.control,
            "variant": variant_of(entry.part.instance),
            "seed": seed,
        }
        return Cell(cell_id=cell_id, facts=shared | facts)


def _model_words(hidden: tuple[int, ...], top_hidden: tuple[int, ...], summed: bool) -> str:
    if summed and not hidden:
        return "vertical logistic"
    sizes = "-".join(str(size) for size in hidden) or "linear"
    return f"split {sizes}/{'sum' if summed else '-'.join(str(size) for size in top_hidden) or 'linear'}"
