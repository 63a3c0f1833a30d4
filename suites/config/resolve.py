"""Resolve: a checked suite plus the command's wishes -> parts, plans, calibrated protections and claims."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...attacks.attack import Attack
from ...attacks.membership.candidate_attack import MembershipAttack
from ...attacks.membership.final_model.shadow_attack import ShadowAttack
from ...audit.claim import Claim
from ...audit.observer import FINAL_MODEL, GLOBAL_MODELS, UPLOADS, Observer
from ...defenses.defense import Defense, Prepared
from ...fl.algorithms.algorithm import algorithm_from
from ...fl.data.datasets import load_dataset
from ...fl.partitions.partitions import partition_from
from ...fl.partitions.sampling import sampling_from
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.streams import Streams
from ...fl.task import Task, build_task
from .catalogue import Part, build, find, part_from_instance
from .compatibility import check_audit, check_federations
from .identity import plain_data
from .plugin_path import check_loaded_from, import_first_from, names_outside_parts
from .source import ConfigError, Source
from .suite import AuditSpec, DefenseSpec, FederationSpec, PlanChange, SuiteSpec

_SHADOWS = 64
"""Federations of a bank where the suite does not say."""
_CURVE_SLACK = 1e-3
"""Rounding by which a signed curve may fall below its own (epsilon, delta)."""


@dataclass(frozen=True, kw_only=True)
class DefenseEntry:
    """A defense of the suite: its label, the part, what it changes of the plan; ``federation``: the only one that it
    runs on; ``replicas``: a world, in its audit; ``seeds``: how many of the suite's it runs on, None for all.
    """

    label: str
    part: Part
    change: PlanChange
    federation: str | None = None
    replicas: int | None = None
    seeds: int | None = None

    @property
    def defense(self) -> Defense:
        """The configured defense."""
        instance: Defense = self.part.instance
        return instance


@dataclass(frozen=True, kw_only=True)
class AttackEntry:
    """An attack of the suite: its label, the part, the federations that it looks at; ``seat``: who looks, where that is
    not the attack's own observer; ``shadows``: how many federations it attacks in turn, None for the trial's one.
    """

    label: str
    part: Part
    federations: tuple[str, ...]
    reduced_to: Observer | None = None
    shadows: int | None = None

    @property
    def attack(self) -> Attack:
        """The configured attack."""
        instance: Attack = self.part.instance
        return instance

    @property
    def observer(self) -> Observer:
        """Who looks."""
        return self.reduced_to or self.attack.observer

    @property
    def configuration(self) -> list[Any]:
        """What its cells' identity holds of it."""
        seated = [] if self.reduced_to is None else [str(self.reduced_to)]
        shadowed = [] if self.shadows is None else [self.shadows]
        return [self.part.path, plain_data(self.attack.fields()), *seated, *shadowed]


@dataclass(frozen=True, kw_only=True)
class ResolvedSuite:
    """Everything that a run needs; data sets are loaded and found whole."""

    spec: SuiteSpec
    seeds: tuple[int, ...]
    defenses: tuple[DefenseEntry, ...]
    attacks: tuple[AttackEntry, ...]
    digests: dict[str, str]


def resolve(spec: SuiteSpec, source: Source, *, seed: int, extra: tuple[str | Defense, ...] = ()) -> ResolvedSuite:
    """Find and build every part; load every data set once.

    Args:
        seed: number of a block of ``spec.seeds`` consecutive seeds: two runs of as many seeds with different ``seed``
            share no stream.
        extra: defenses to add, by name, as ``package.module:Class``, or built.

    Raises:
        ConfigError: unknown parts or fields, with file and line.
        DatasetMissing: a data set that is neither here nor to be had.
    """
    if seed < 0:
        raise ConfigError(f"seed must be >= 0, got {seed}")
    if source.folder and names_outside_parts(spec):
        import_first_from(source.folder)
    defenses = [_defense(label, spec, source) for label in spec.defenses]
    for wish in extra:
        part = build("defense", wish, {}) if isinstance(wish, str) else part_from_instance(wish, "defense")
        if source.folder and isinstance(wish, str):  # Named from where the command stands, not from beside the suite.
            check_loaded_from(wish, str(Path.cwd()))
        defenses.append(DefenseEntry(label=_free_label(part, defenses), part=part, change=PlanChange()))
    added = {entry.label: _as_written(entry.part) for entry in defenses if entry.label not in spec.defenses}
    spec = spec.model_copy(update={"defenses": {**spec.defenses, **added}})
    attacks = tuple(_attack(label, spec, source) for label in spec.attacks)
    names = sorted({federation.dataset for federation in spec.federations.values()} | _audited(spec))
    digests = {name: _digest(name) for name in names}
    for entry in attacks:
        check_federations(
            entry.attack, entry.part.path, entry.federations, spec, source.where(("attacks", entry.label))
        )
    check_audit(spec, source.where(("audit", "model")))
    return ResolvedSuite(
        spec=spec,
        seeds=tuple(range(seed * spec.seeds, (seed + 1) * spec.seeds)),
        defenses=tuple(defenses),
        attacks=attacks,
        digests=digests,
    )


def _digest(name: str) -> str:
    try:
        return load_dataset(name).digest
    except ValueError as error:  # Files that are not what they should be.
        raise ConfigError(str(error)) from error


def plan_of(spec: FederationSpec, change: PlanChange, task: Task) -> Plan:
    """The public plan of a federation, as one defense changes it."""
    return Plan(
        sizes=task.sizes,
        rounds=spec.rounds,
        cohort=sampling_from(change.cohort or spec.cohort),
        lot=sampling_from(change.lot or spec.lot),
        algorithm=algorithm_from(change.algorithm or spec.algorithm),
        layout=task.network.layout,
    )


@lru_cache(maxsize=4)
def _task(specification: str, seed: int) -> Task:
    spec = FederationSpec.model_validate_json(specification)
    return build_task(
        load_dataset(spec.dataset),
        model=spec.model,
        partition=partition_from(spec.partition),
        clients=spec.clients,
        streams=Streams(seed),
        samples=spec.samples,
        label_noise=spec.label_noise,
        pixel_noise=spec.pixel_noise,
        held_out=spec.held_out,
    )


def task_of(spec: FederationSpec, seed: int) -> Task:
    """The data of a federation for one seed, kept for the process's next job."""
    return _task(spec.model_dump_json(), seed)


def prepare(suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
    """Calibrate a defense on a federation's plan, or on that of the federation which this one borrows its calibration
    from.

    Raises:
        ConfigError: if the plan or model breaks an assumption of the defense, or it signs nothing that can be read.
    """
    spec = suite.spec.federations[federation]
    basis = suite.spec.federations[spec.calibrated_on or federation]
    try:
        plan = plan_of(basis, entry.change, task_of(basis, seed))
    except ValueError as error:
        raise ConfigError(f"federation {spec.calibrated_on or federation} cannot be set up: {error}") from error
    try:
        prepared = entry.defense.prepare(plan)
    except Exception as error:  # Whatever a part raises is told to the user, who named it; nothing has run yet.
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"defense {entry.label} cannot be prepared for federation {federation}: {words}") from error
    if not _is_sound(prepared):
        raise ConfigError(
            f"defense {entry.label}: prepare(plan) must return Prepared(protection, claims), got {prepared!r}"
        )
    if prepared.protection.per_sample:
        try:
            task_of(spec, seed).network.check_separate(f"defense {entry.label}")
        except ValueError as error:
            raise ConfigError(f"federation {federation}: {error}") from error
    for claim in prepared.claims:
        if claim.rounds > plan.rounds:
            raise ConfigError(
                f"defense {entry.label} signs a claim over {claim.rounds} rounds, but federation {federation} is "
                f"calibrated on a plan of {plan.rounds}: nobody could gather evidence of the others"
            )
        if claim.curve_shortfall() > _CURVE_SLACK:
            raise ConfigError(
                f"defense {entry.label} signs a curve that does not imply its own epsilon {claim.epsilon:g} at delta "
                f"{claim.delta:g}: it allows false-negative rates {claim.curve_shortfall():.2g} lower"
            )
    return prepared


def _is_sound(prepared: object) -> bool:
    return (
        isinstance(prepared, Prepared)
        and isinstance(prepared.protection, Protection)
        and isinstance(prepared.claims, tuple | list)
        and all(isinstance(claim, Claim) for claim in prepared.claims)
    )


def _defense(label: str, spec: SuiteSpec, source: Source) -> DefenseEntry:
    chosen = spec.defenses[label]
    configuration: dict[str, Any] = dict(chosen.model_extra or {})
    part = _build("defense", label, chosen.part or label, configuration, source)
    return DefenseEntry(
        label=label,
        part=part,
        change=chosen.plan or PlanChange(),
        federation=chosen.federation,
        replicas=chosen.replicas,
        seeds=chosen.seeds,
    )


def _attack(label: str, spec: SuiteSpec, source: Source) -> AttackEntry:
    chosen = spec.attacks[label]
    configuration: dict[str, Any] = dict(chosen.model_extra or {})
    part = _build("attack", label, chosen.part or label, configuration, source)
    shadows = chosen.shadows or (_SHADOWS if isinstance(part.instance, ShadowAttack) else None)
    entry = AttackEntry(label=label, part=part, federations=chosen.federations, shadows=shadows)
    if shadows and not (isinstance(entry.attack, MembershipAttack) and entry.observer == FINAL_MODEL):
        where = source.where(("attacks", label, "shadows"))
        raise ConfigError(f"{where}: shadows are for membership attacks on the final model, {part.path} is none")
    if chosen.observer is None or Observer(chosen.observer) == entry.observer:
        return entry
    where = source.where(("attacks", label, "observer"))
    asks, seated = type(entry.attack).plant is not Attack.plant, entry.attack.seated
    if not seated and (entry.observer != UPLOADS or asks):
        raise ConfigError(f"{where}: only attacks on uploads look from elsewhere, {part.path} from {entry.observer}")
    if Observer(chosen.observer) == GLOBAL_MODELS and not seated:
        raise ConfigError(f"{where}: {part.path} needs at least a round's sum, global_models are models only")
    return replace(entry, reduced_to=Observer(chosen.observer))


def _build(kind: Any, label: str, name: str, configuration: dict[str, Any], source: Source) -> Part:
    table = (f"{kind}s", label)
    try:
        find(kind, name)
        check_loaded_from(name, source.folder)
    except ConfigError as error:
        raise ConfigError(f"{source.where((*table, 'part'))}: {error}") from None
    try:
        return build(kind, name, configuration)
    except ConfigError as error:
        # Parts name the field that is wrong: the line is that of the first key that the error speaks of.
        words = re.findall(r"\w+", str(error))
        wrong = min((key for key in configuration if key in words), key=words.index, default="part")
        raise ConfigError(f"{source.where((*table, wrong))}: {error}") from None


def audited(federation: FederationSpec, audit: AuditSpec) -> FederationSpec:
    """The federation with the data and model that its audit's replicas use."""
    return federation.model_copy(update={"dataset": audit.dataset or federation.dataset, "model": audit.model})


def _audited(spec: SuiteSpec) -> set[str]:
    return {spec.audit.dataset} if spec.audit is not None and spec.audit.dataset is not None else set()


def _as_written(part: Part) -> DefenseSpec:
    """A defense as a suite file would name it, so that a resumed run finds it."""
    fields = {name: plain_data(value) for name, value in part.instance.fields().items()}
    return DefenseSpec.model_validate({"part": part.path, **fields})


def _free_label(part: Part, taken: list[DefenseEntry]) -> str:
    """The class's or file's name, as a suite file could write it, numbered where it is taken."""
    name = re.sub(r"[^A-Za-z0-9_\-]", "_", part.path.rpartition(":")[2].rpartition(".")[2])[:36]
    labels = {entry.label for entry in taken}
    return next(label for n in range(1, len(labels) + 2) if (label := name if n == 1 else f"{name}_{n}") not in labels)
