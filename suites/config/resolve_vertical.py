"""Turn the vertical federations of a suite into tasks, plans and calibrated defenses."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from ...attacks.vertical.attack import VerticalAttack
from ...audit.parts import name_and_options
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.datasets import load_dataset
from ...fl.data.files.columns.table_options import TableOptions
from ...fl.data.files.lookup import names_a_file
from ...fl.streams import Streams
from ...fl.vertical.law import VerticalLaw
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.task import VerticalTask, build_vertical_task
from .other_federations import Prepares, attacks_on, calibrated_for, defenses_on
from .outside_parts import outside_versions
from .resolve import AttackEntry, DefenseEntry, ResolvedSuite, line_of
from .source import ConfigError
from .tables.vertical import VerticalSpec

_LEAST_PEOPLE = 4
"""Of a federation whose labels are guessed in one run: at least two guesses are planned."""
_RETURNS = Prepares(
    prepared=VerticalPrepared, protection=VerticalProtection, mappings={"laws": VerticalLaw, "spending": Callable}
)


def vertical_task_of(spec: VerticalSpec, seed: int) -> VerticalTask:
    """Build the data and models of a vertical federation for one seed; the result is cached because the next job often
    needs it again.
    """
    return _task(spec.model_dump_json(), seed, spec.folder, spec.digest, str(outside_versions([spec])))


@lru_cache(maxsize=4)
def _task(specification: str, seed: int, folder: str, digest: str, versions: str) -> VerticalTask:
    spec = VerticalSpec.model_validate_json(specification)
    return build_vertical_task(
        load_dataset(spec.reading_alone(folder, digest).data),
        streams=Streams(seed),
        columns=spec.columns,
        active=spec.active,
        people=spec.people,
        public=spec.public,
        embedding=spec.embedding,
        hidden=spec.hidden,
        top_hidden=spec.top_hidden,
        summed=spec.summed,
    )


def vertical_plan_of(spec: VerticalSpec, task: VerticalTask) -> VerticalPlan:
    """Return the public plan of a vertical federation."""
    return VerticalPlan(
        people=len(task.people),
        network=task.network,
        epochs=spec.epochs,
        batch=spec.batch,
        learning_rate=spec.learning_rate,
        frozen=spec.frozen,
    )


def small_plan(plan: VerticalPlan, people: int, batch: int) -> VerticalPlan:
    """Return the same plan for at most ``people`` people in batches of at most ``batch``; its last batch is smaller
    where that of the plan is, because a defense may treat it differently; with fewer than three people, or batches of
    one, it is not.
    """
    fewer = min(people, plan.people)
    each = min(batch, plan.batch, fewer)
    if plan.people % plan.batch and not fewer % each:
        fewer, each = (fewer - each // 2, each) if fewer > each else (fewer, fewer // 2 + 1)
    return replace(plan, people=fewer, batch=each)


def vertical_defenses(suite: ResolvedSuite, federation: str) -> list[DefenseEntry]:
    """Return the defenses that run on a vertical federation."""
    return defenses_on(suite, federation, VerticalDefense)


def vertical_attacks(suite: ResolvedSuite, federation: str) -> list[AttackEntry]:
    """Return the attacks that run on a vertical federation."""
    return attacks_on(suite, federation, VerticalAttack)


def prepare_vertical(
    suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int
) -> tuple[VerticalPlan, VerticalPrepared]:
    """Calibrate a defense for a vertical federation's plan.

    Raises:
        ConfigError: if the federation cannot be set up, its plan breaks an assumption of the defense, or the defense
            returns no valid claims.
    """
    spec = suite.spec.vertical[federation]
    _check_label(suite, federation)
    try:
        plan = vertical_plan_of(spec, vertical_task_of(spec, seed))
    except ValueError as error:
        place = line_of(str(error), suite.source, ("vertical", federation), spec.model_fields_set)
        raise ConfigError(f"{place}: federation {federation} cannot be set up: {error}") from error
    if spec.known >= plan.people:
        place = suite.source.where(("vertical", federation, "known"))
        raise ConfigError(f"{place}: known must be below people = {plan.people}, got {spec.known}")
    if spec.audit and spec.audit.design != "independent" and plan.people < _LEAST_PEOPLE:
        place = suite.source.where(("vertical", federation, "people"))
        raise ConfigError(
            f"{place}: people must be >= {_LEAST_PEOPLE} for design = {spec.audit.design!r}, which guesses about one "
            f"half of them from the other, got {plan.people}"
        )
    prior = spec.audit.prior if spec.audit else None
    if prior is not None and len(prior) != plan.network.classes:
        place = suite.source.where(("vertical", federation, "audit", "prior"))
        raise ConfigError(
            f"{place}: prior must have one probability per label, {plan.network.classes}, got {len(prior)}"
        )
    prepared: VerticalPrepared = calibrated_for(suite, entry, federation, plan, _RETURNS)
    return plan, prepared


def _check_label(suite: ResolvedSuite, federation: str) -> None:
    """Raise ConfigError if the column of a file's labels is listed among the columns of a party."""
    spec = suite.spec.vertical[federation]
    name, options = name_and_options("dataset", spec.dataset)
    listed = () if isinstance(spec.columns, int) else chain(*spec.columns)
    label = options.get("label", TableOptions.label)
    if names_a_file(name) and label in listed:
        place = suite.source.where(("vertical", federation, "columns"))
        raise ConfigError(
            f"{place}: federation {federation} cannot be set up: columns must not list {label!r}, which is the label: "
            "the active party holds it"
        )
