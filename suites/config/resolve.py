"""Turn a checked suite into ready-to-run defenses, attacks, federation plans and privacy claims."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ...attacks.attack import Attack
from ...attacks.membership.candidates import MembershipAttack
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.transfer.vote_attack import VoteAttack
from ...audit.claim import Claim
from ...audit.evidence import Design
from ...audit.observer import FINAL_MODEL, GLOBAL_MODELS, UPLOADS, Observer
from ...audit.parts import find_outside, import_first_from, label, name_and_options
from ...audit.supplied.chosen import chosen
from ...checks.canaries import canary_kind
from ...defenses.defense import Defense, Prepared
from ...defenses.transfer.defense import TransferDefense
from ...fl.algorithms import algorithm_from
from ...fl.data.datasets import load_dataset
from ...fl.models.layers import normalisation_from
from ...fl.models.network import Network
from ...fl.partitions import partition_from
from ...fl.plan import Plan
from ...fl.preparation import Pipeline, check_options, preparation_from
from ...fl.protection import Protection
from ...fl.sampling import cohort_from, sampling_from
from ...fl.streams import Streams
from ...fl.task import Task, WarmStartRule, build_task, dealt_of
from ...fl.training.executor_choice import executor_named
from ...fl.training.local import LocalTrainer
from .catalogue import (
    Part,
    build,
    check_loaded_from,
    is_outside,
    outside_versions,
    own_names,
    part_from_instance,
    parts_in,
    paths_of,
    tables_with_parts,
)
from .compatibility import DEFAULT_SHADOWS, check_audit, check_federations, check_recordings, too_few
from .recorded import recorded_task
from .source import ConfigError, Source
from .suite_file import line_of, listed_part, with_data_files
from .tables.key_types import WithData
from .tables.suite import AuditSpec, DefenseSpec, FederationSpec, PlanChange, Suite

_BUILT: dict[str, Callable[[Any], object]] = {
    "algorithm": algorithm_from,
    "partition": partition_from,
    "preparation": preparation_from,
    "sampling": sampling_from,
    "canary": canary_kind,
}
"""The kinds of parts that can be built without data, which checks their options."""
_MEMBERS = {"federations": "clients", "vertical": "parties", "transfer": "teachers"}
"""What takes part in the federations of each table."""
_Built = TypeVar("_Built")
_OfSettings = TypeVar("_OfSettings", bound=Callable[..., Any])
_CURVE_SLACK = 1e-3
"""Rounding error by which a stated curve may fall below its own (epsilon, delta)."""


@dataclass(frozen=True, kw_only=True)
class DefenseEntry:
    """A defense as listed in the suite, with its label and its table."""

    label: str
    part: Part
    spec: DefenseSpec

    @property
    def change(self) -> PlanChange:
        """The defense's changes to the federation's plan."""
        return self.spec.plan or PlanChange()

    @property
    def defense(self) -> Defense:
        """The defense object with its configuration."""
        instance: Defense = self.part.instance
        return instance


@dataclass(frozen=True, kw_only=True)
class AttackEntry:
    """An attack as listed in the suite, with its label and its settings.

    Args:
        federations: those that it runs on.
        reduced_to: the observer whose view it gets, where that is not the attack's own observer.
        shadows: how many shadow federations it attacks in turn; None for one attack on the trial's federation.
    """

    label: str
    part: Part
    federations: tuple[str, ...]
    reduced_to: Observer | None = None
    shadows: int | None = None

    @property
    def attack(self) -> Attack:
        """The attack object with its configuration."""
        instance: Attack = self.part.instance
        return instance

    @property
    def observer(self) -> Observer:
        """The observer, which determines what the attack receives."""
        return self.reduced_to or self.attack.observer

    @property
    def configuration(self) -> list[Any]:
        """The facts about the attack that determine its results; they are hashed to identify a result."""
        # Unset options add nothing to the list, so that cells recorded before an option existed keep their identity.
        observers = [] if self.reduced_to is None else [str(self.reduced_to)]
        counts = [] if self.shadows is None else [self.shadows]
        return [self.part.path, plain_data(self.attack.fields()), *observers, *counts]


@dataclass(frozen=True, kw_only=True)
class ResolvedSuite:
    """A suite with everything that a run needs: its defenses and attacks are built, and its data sets are loaded and
    checked.
    """

    spec: Suite
    seeds: tuple[int, ...]
    defenses: tuple[DefenseEntry, ...]
    attacks: tuple[AttackEntry, ...]
    digests: dict[str, str]
    source: Source

    def task(self, federation: str, seed: int) -> Task:
        """Build the data and model of a federation for one seed, as the function ``task_of`` does.

        Raises:
            ConfigError: if the federation cannot be set up, with file and line.
        """
        return set_up(self, "federations", federation, lambda: task_of(self.spec.federations[federation], seed))


def resolve(spec: Suite, source: Source, *, seed: int, extra: tuple[str | Defense, ...] = ()) -> ResolvedSuite:
    """Find and build every defense and attack of the suite, and load every data set once.

    Args:
        seed: number of a block of ``spec.seeds`` consecutive seeds. Two runs with equally many seeds and different
            ``seed`` share no random stream.
        extra: defenses to add, by name, as ``package.module:Class``, or as an object.

    Raises:
        ConfigError: for unknown parts or fields, with file and line.
        DatasetMissing: for a data set that is neither stored here nor can be downloaded.
    """
    if seed < 0:
        raise ConfigError(f"seed must be >= 0, got {seed}")
    if source.folder and any(paths_of(spec)):
        import_first_from(source.folder)
    mistakes = list[str]()
    defenses = _each(lambda label: _defense_entry(label, spec, source), spec.defenses, mistakes)
    attacks = tuple(_each(lambda label: _attack_entry(label, spec, source), spec.attacks, mistakes))
    digests = _digests(spec, source, mistakes)
    _check_paths(spec, source, mistakes)
    if mistakes:
        raise ConfigError(*dict.fromkeys(mistakes))
    for added in extra:
        part = build("defense", added, {}) if isinstance(added, str) else part_from_instance(added, "defense")
        if source.folder and isinstance(added, str):  # The command names it: its module is in the current folder.
            check_loaded_from(added, str(Path.cwd()))
        defenses.append(DefenseEntry(label=_free_label(part, defenses), part=part, spec=_as_written(part)))
    # The manifest keeps the whole suite, the added defenses included: a resumed run gets them from there.
    spec = spec.model_copy(update={"defenses": {entry.label: entry.spec for entry in defenses}})
    spec = with_data_files(spec, source.data_folder, digests)
    check_kinds(spec, defenses, attacks, source)
    for entry in attacks:
        if isinstance(entry.part.instance, Attack):
            clients = [name for name in entry.federations if name in spec.federations]
            check_federations(entry.attack, entry.part.path, clients, spec, source.where(("attacks", entry.label)))
    shadowed = [name for entry in attacks if entry.shadows is not None for name in entry.federations]
    check_recordings(spec, shadowed, source.where(("federations",)))
    check_audit(spec, source.where(("audit", "model")))
    return ResolvedSuite(
        spec=spec,
        seeds=tuple(range(seed * spec.seeds, (seed + 1) * spec.seeds)),
        defenses=tuple(defenses),
        attacks=attacks,
        digests=digests,
        source=source,
    )


def check_kinds(spec: Suite, defenses: Iterable[DefenseEntry], attacks: Iterable[AttackEntry], source: Source) -> None:
    """Raise ConfigError for a defense or attack that no federation of the suite can run. A defense or attack for
    clients (horizontal) needs a table ``[federations.NAME]``, one for parties ``[vertical.NAME]``, and one for teachers
    ``[transfer.NAME]``.
    """
    entries: list[DefenseEntry | AttackEntry] = [*defenses, *attacks]
    for entry in entries:
        kind, tables = ("defense" if isinstance(entry, DefenseEntry) else "attack"), _tables_of(entry)
        if isinstance(entry, DefenseEntry):
            named: tuple[str, ...] = (entry.spec.federation,) if entry.spec.federation else ()
        else:
            named = entry.federations
        wrong = [name for table, name in spec.federation_tables if name in named and table not in tables]
        if wrong or not any(getattr(spec, table) for table in tables):
            needed = " or ".join(f"{_MEMBERS[table]} ([{table}.NAME])" for table in tables)
            raise ConfigError(
                f"{source.where((f'{kind}s', entry.label))}: {kind} {entry.part.path} runs on federations of {needed}; "
                + (f"{wrong[0]} is none" if wrong else "the suite has none")
                + ("; with the key shadows it runs on transfers too" if _may_have_shadows(entry) else "")
            )


def _may_have_shadows(entry: DefenseEntry | AttackEntry) -> bool:
    part = entry.part.instance
    return isinstance(part, MembershipAttack) and part.observer == FINAL_MODEL


def _tables_of(entry: DefenseEntry | AttackEntry) -> tuple[str, ...]:
    """The tables of the federations that a part can run on."""
    part = entry.part.instance
    if isinstance(part, TransferDefense | VoteAttack):
        return ("transfer",)
    if isinstance(part, Defense | Attack):
        # A student is a final model: attacks on shadow federations attack shadow students as well.
        on_students = isinstance(entry, AttackEntry) and entry.shadows is not None
        return ("federations", "transfer") if on_students else ("federations",)
    return ("vertical",)


def _check_paths(spec: Suite, source: Source, mistakes: list[str]) -> None:
    """Import every part from outside, so that one that is not there is reported before any work, with its line."""
    for place, table in tables_with_parts(spec).items():
        for key, kind, value in parts_in(table):
            name, _ = name_and_options(kind, value)
            try:
                if is_outside(kind, name):
                    find_outside(kind, name, own_names(kind))
                    check_loaded_from(name, source.folder)
                    _BUILT.get(kind, str)(value)
            except ValueError as error:
                mistakes.append(f"{source.where((*place, key))}: {error}")
    if spec.audit is not None and spec.audit.estimator is not None:
        design = Design.ONE_RUN if spec.audit.design == "one_run" else Design.INDEPENDENT
        try:
            chosen([spec.audit.estimator], design, ())
        except ValueError as error:
            mistakes.append(f"{source.where(('audit', 'estimator'))}: {error}")


def _digests(spec: Suite, source: Source, mistakes: list[str]) -> dict[str, str]:
    """The digest of each data set of the suite by its label."""
    places: dict[tuple[str, ...], WithData] = {**spec.federation_tables}
    if spec.audit is not None and spec.audit.dataset is not None:
        places["audit",] = audited(spec.federations[spec.audit.federation], spec.audit)
    found: dict[str, str] = {}
    for place, used in places.items():
        try:
            found[label("dataset", used.dataset)] = load_dataset(used.data).digest
        except ValueError as error:  # A damaged file, one with another content than expected, or a bad part.
            mistakes.append(f"{source.where((*place, 'dataset'))}: {error}")
    return dict(sorted(found.items()))


def plan_of(spec: FederationSpec, change: PlanChange, task: Task) -> Plan:
    """Return the public plan of a federation (rounds, sampling, algorithm), including the changes that one defense
    makes to it.
    """
    return Plan(
        sizes=task.sizes,
        rounds=spec.rounds,
        # From the suite's clients and not the task's: an audit cuts the federation to fewer.
        cohort=cohort_from(change.cohort or spec.cohort, spec.clients),
        lot=sampling_from(change.lot or spec.lot),
        algorithm=algorithm_from(check_options(change.algorithm or spec.algorithm, task.options)),
        layout=task.network.layout,
        clients_per_user=task.clients_per_user,
    )


def cached_by_settings(build: _OfSettings) -> _OfSettings:
    """Cache the latest results of a function of a federation's settings, because the next job often needs them
    again.
    """

    @lru_cache(maxsize=4)
    def kept(table: type[WithData], text: str, folder: str, digest: str, versions: str, *rest: int) -> Any:
        return build(table.model_validate_json(text).reading_alone(folder, digest), *rest)

    @wraps(build)
    def found(spec: WithData, *rest: int) -> Any:
        # Settings hold dictionaries, which no cache can hash: their JSON text is the key. The code of a part that was
        # reloaded is another, although its name is the same.
        versions = str(outside_versions([spec]))
        return kept(type(spec), spec.model_dump_json(), spec.folder, spec.digest, versions, *rest)

    vars(found)["cache_clear"] = kept.cache_clear
    return cast(_OfSettings, found)


@cached_by_settings
def task_of(spec: FederationSpec, seed: int, own_model: int = True) -> Task:
    """Build the data and model of a federation for one seed.

    Args:
        own_model: whether the settings name the federation's own model, for which a preparation may give an initial
            one.
    """
    if spec.recording is not None:
        return recorded_task(spec, seed)
    if (pipeline := pipeline_of(spec, seed)) is not None:
        pipeline = replace(pipeline, own_model=bool(own_model))
        return pipeline.task(pipeline.draw(pipeline.records).data)
    return build_task(
        load_dataset(spec.data),
        label_noise=spec.label_noise,
        pixel_noise=spec.pixel_noise,
        warm_start=None if spec.warm_start is None else WarmStartRule(**spec.warm_start.model_dump()),
        **_dealing(spec, seed),
    )


def pipeline_of(spec: FederationSpec, seed: int) -> Pipeline | None:
    """Return the steps from records to the task of a federation, for one seed; None if its data are not prepared."""
    if spec.preparation is None:
        return None
    return Pipeline(
        preparation=preparation_from(spec.preparation), records=load_dataset(spec.data), **_dealing(spec, seed)
    )


def _dealing(spec: FederationSpec, seed: int) -> dict[str, Any]:
    return {
        "model": spec.model,
        "partition": partition_from(spec.partition),
        "clients": spec.clients,
        "streams": Streams(seed),
        "samples": spec.samples,
        "held_out": spec.held_out,
        "normalisation": None if spec.normalise is None else normalisation_from(spec.normalise),
    }


def audit_task_of(spec: FederationSpec, audit: AuditSpec, seed: int) -> Task:
    """Build the data and model of the runs that audit a federation, for one seed."""
    own_model = audit.model == spec.model
    return task_of(audited(spec, audit), seed, own_model)


def executor_of(spec: FederationSpec) -> type[LocalTrainer] | None:
    """Return the executor that computes a federation's local training; None if the federation names none."""
    return None if spec.executor is None else executor_named(spec.executor)


def check_executor(spec: FederationSpec, network: Network, place: str) -> None:
    """Raise ConfigError, which begins with ``place``, if a federation's executor cannot train a model here."""
    if (executor := executor_of(spec)) is not None:
        try:
            executor.check(network)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Prepares:
    """The type of object that ``prepare(plan)`` must return, for one kind of defense.

    Args:
        prepared: its class, with fields ``protection`` and ``claims``.
        protection: the base class of its protection.
        mappings: its fields that are dictionaries by ``claim_id``, and the class of their values.
    """

    prepared: type[Any]
    protection: type[Any]
    mappings: Mapping[str, Any] = field(default_factory=dict)

    def why_not(self, found: object) -> str:
        """Return which field of ``found`` has a wrong class, and its value; empty string if all fields are right."""
        if not isinstance(found, self.prepared):
            return f"got {_shown(found)}"
        if not isinstance(found.protection, self.protection):
            return f"protection must be a {self.protection.__name__}, got {_shown(found.protection)}"
        if not isinstance(found.claims, tuple | list):
            return f"claims must be a tuple of Claim, got {_shown(found.claims)}"
        wrong = [claim for claim in found.claims if not isinstance(claim, Claim)]
        if wrong:
            return f"claims must be a tuple of Claim, got an entry {_shown(wrong[0])}"
        each = (_why_no_mapping(name, getattr(found, name), kind) for name, kind in self.mappings.items())
        return next((words for words in each if words), "")


def _why_no_mapping(name: str, found: object, kind: Any) -> str:
    wanted = f"{name} must be a dictionary of {kind.__name__} by claim_id"
    if not isinstance(found, Mapping):
        return f"{wanted}, got {_shown(found)}"
    wrong = [f"{_shown(key)}: {_shown(value)}" for key, value in found.items() if not isinstance(value, kind)]
    return f"{wanted}, got the entry {wrong[0]}" if wrong else ""


def _shown(value: object) -> str:
    """A number or a text as it is, and the type of any other object, whose own words may be its address."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return f"{value!r:.80}" if plain else f"an object of type {type(value).__name__}"


_PREPARED = Prepares(prepared=Prepared, protection=Protection)


def set_up(
    suite: ResolvedSuite, table: str, federation: str, build: Callable[[], _Built], changed: tuple[str, ...] = ()
) -> _Built:
    """Build something from a federation's settings by ``build()``; if that fails, raise ConfigError with file and line.
    If a key ``changed`` outside the federation's table replaces one of its settings, the line is that of this key.
    """
    try:
        return build()
    except ValueError as error:
        keys = getattr(suite.spec, table)[federation].model_fields_set
        place = suite.source.where(changed) if changed else line_of(str(error), suite.source, (table, federation), keys)
        words = f" with {'.'.join(changed)}" if changed else ""
        raise ConfigError(f"{place}: federation {federation}{words} cannot be set up: {error}") from error


def calibrated_for(suite: ResolvedSuite, entry: DefenseEntry, federation: str, plan: Any, returns: Prepares) -> Any:
    """Calibrate a defense for a federation's plan.

    Raises:
        ConfigError: if the plan breaks an assumption of the defense, or the defense returns no valid claims.
    """
    try:
        prepared = calibrated(entry.part.instance, plan)
    except Exception as error:  # A user's part may raise anything; nothing has run yet, so one message is enough.
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        place = suite.source.where(("defenses", entry.label))
        raise ConfigError(
            f"{place}: defense {entry.label} cannot be prepared for federation {federation}: {words}"
        ) from error
    why = returns.why_not(prepared)
    if why:
        wanted = f"{returns.prepared.__name__}(protection, claims)"
        raise ConfigError(f"defense {entry.label}: prepare(plan) must return {wanted}: {why}")
    return prepared


def prepare(suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
    """Calibrate a defense for a federation's plan; if the federation sets ``calibrated_on``, use the plan of the
    federation named there.

    Raises:
        ConfigError: if the plan or model breaks an assumption of the defense, or the defense returns no valid claims.
    """
    spec = suite.spec.federations[federation]
    own = spec.calibrated_on or federation
    task = suite.task(own, seed)
    plan = set_up(suite, "federations", own, lambda: plan_of(suite.spec.federations[own], entry.change, task))
    prepared: Prepared = calibrated_for(suite, entry, federation, plan, _PREPARED)
    # A model that mixes the samples of a batch, such as one with batch norm, has no per-sample gradients to clip.
    if prepared.protection.per_sample:
        try:
            task_of(spec, seed).network.check_separate(f"defense {entry.label}")
        except ValueError as error:
            raise ConfigError(f"federation {federation}: {error}") from error
    for claim in prepared.claims:
        _check_law(entry.label, prepared.protection, claim, plan)
        if claim.rounds > plan.rounds:
            raise ConfigError(
                f"defense {entry.label} states a claim over {claim.rounds} rounds, but federation {federation} is "
                f"calibrated on a plan of {plan.rounds} rounds: a claim must not cover more rounds than the plan"
            )
        if claim.curve_shortfall() > _CURVE_SLACK:
            raise ConfigError(
                f"defense {entry.label} states a trade-off curve that is weaker than its own epsilon "
                f"{claim.epsilon:g} at delta {claim.delta:g}: the false-negative rates of the curve are up to "
                f"{claim.curve_shortfall():.2g} below those that this epsilon and delta imply"
            )
    return prepared


def _check_law(label: str, protection: Protection, claim: Claim, plan: Plan) -> None:
    try:
        law = protection.law(claim.observer, plan, 0)
    except Exception as error:  # As of prepare, above.
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"defense {label}: law(observer, plan, client) failed for client 0: {words}") from error
    methods = ("contribution", "sample", "log_density")
    if law is not None and not all(callable(getattr(law, name, None)) for name in methods):
        raise ConfigError(
            f"defense {label}: law(observer, plan, client) must return a law such as GaussianLaw, or None, got {law!r}"
        )


def _each(make: Callable[[str], _Built], labels: Iterable[str], mistakes: list[str]) -> list[_Built]:
    """What is made of each label; of those that are refused their mistakes are added."""
    made = list[_Built]()
    for one in labels:
        try:
            made.append(make(one))
        except ConfigError as error:
            mistakes += error.args
    return made


def _defense_entry(label: str, spec: Suite, source: Source) -> DefenseEntry:
    chosen = spec.defenses[label]
    part = listed_part("defense", label, chosen.part or label, dict(chosen.model_extra or {}), source)
    return DefenseEntry(label=label, part=part, spec=chosen)


def _attack_entry(label: str, spec: Suite, source: Source) -> AttackEntry:
    chosen = spec.attacks[label]
    part = listed_part("attack", label, chosen.part or label, dict(chosen.model_extra or {}), source)
    shadows = chosen.shadows or (DEFAULT_SHADOWS if isinstance(part.instance, ShadowAttack) else None)
    entry = AttackEntry(label=label, part=part, federations=chosen.federations, shadows=shadows)
    if not isinstance(part.instance, Attack):
        if chosen.shadows or chosen.observer:
            where = source.where(("attacks", label, "shadows" if chosen.shadows else "observer"))
            raise ConfigError(f"{where}: the keys shadows and observer are for attacks on federations of clients")
        return entry
    if shadows and not _may_have_shadows(entry):
        where = source.where(("attacks", label, "shadows"))
        raise ConfigError(
            f"{where}: the key shadows can be set only for a membership attack on the final model; "
            f"{part.path} is not one"
        )
    if shadows and isinstance(part.instance, ShadowAttack) and (why := too_few(part.instance, shadows)):
        raise ConfigError(f"{source.where(('attacks', label, 'shadows'))}: attacks.{label}.shadows: {why}")
    if chosen.observer is None or Observer(chosen.observer) == entry.observer:
        return entry
    where = source.where(("attacks", label, "observer"))
    plants, reduces = type(entry.attack).plant is not Attack.plant, entry.attack.handles_reduced_views
    if not reduces and (entry.observer != UPLOADS or plants):
        raise ConfigError(
            f"{where}: the key observer can be set only for an attack on client uploads; {part.path} attacks what the "
            f"observer {entry.observer} receives"
        )
    if Observer(chosen.observer) == GLOBAL_MODELS and not reduces:
        raise ConfigError(
            f"{where}: {part.path} needs at least the sum of each round's updates, but the "
            f"observer global_models receives only models"
        )
    return replace(entry, reduced_to=Observer(chosen.observer))


def audited(federation: FederationSpec, audit: AuditSpec) -> FederationSpec:
    """Return a federation's settings, with the data set and model replaced by those that its audit uses."""
    change: dict[str, Any] = {"dataset": audit.dataset or federation.dataset, "model": audit.model}
    # The constants, and the number of samples that are used, are those of the federation's own data.
    if change["dataset"] != federation.dataset:
        change |= {"normalise": None, "samples": None}
    found = federation.model_copy(update=change)
    if audit.dataset is None:
        return found
    # A small data set may offer less than one sample for each client; audits run few clients anyway.
    offered = dealt_of(load_dataset(found.data))
    few = {"clients": min(found.clients, offered), "held_out": 0}
    return found if found.clients + found.held_out <= offered else found.model_copy(update=few)


def _as_written(part: Part) -> DefenseSpec:
    """The table of a suite file that describes this defense, so that a resumed run can rebuild it."""
    fields = {name: plain_data(value) for name, value in part.instance.fields().items()}
    return DefenseSpec.model_validate({"part": part.path, **fields})


def _free_label(part: Part, taken: list[DefenseEntry]) -> str:
    """The name of the class or file in the characters that a label allows, with a number where it is taken."""
    name = re.sub(r"[^A-Za-z0-9_\-]", "_", part.path.rpartition(":")[2].rpartition(".")[2])[:36]
    # At most 36 characters: a number of three digits still fits into a label of 40.
    labels = {entry.label for entry in taken}
    return next(label for n in range(1, len(labels) + 2) if (label := name if n == 1 else f"{name}_{n}") not in labels)


def calibrated(defense: Any, plan: Any) -> Any:
    """Return ``defense.prepare(plan)``; the result is kept for equal defenses and plans, if both can be hashed.

    Raises:
        Exception: whatever the defense raises.
    """
    try:
        hash((defense, plan))
    except TypeError:
        return defense.prepare(plan)
    return _kept(type(defense).prepare, defense, plan)


# Calibration may take seconds. The plans of all seeds are often equal, and so are those that the audits of a defense's
# claims run.
@lru_cache(maxsize=1024)
def _kept(prepare: Callable[[Any, Any], Any], defense: Any, plan: Any) -> Any:
    return prepare(defense, plan)


IDENTITY = "identity-6"
"""Must change whenever the same configuration would give other numbers (random streams, engine, scoring)."""


def identity(**facts: Any) -> str:
    """Return 16 hexadecimal digits of a SHA-256 hash of named facts; the hash depends neither on the order of the facts
    nor on the process.

    Raises:
        TypeError: for a fact that is not plain data.
    """
    # Not Python's hash(), which is salted anew in each process: a resumed run has to find the same cells.
    text = json.dumps({"identity": IDENTITY, **facts}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain_data(value: Any) -> Any:
    """Return a configuration value as plain data: finite numbers, text and containers unchanged, anything else as its
    ``repr``.
    """
    if isinstance(value, np.generic):
        return plain_data(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    return repr(value)
