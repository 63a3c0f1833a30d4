"""Conformance checks of defenses of, and attacks on, vertical federations."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch

from ...attacks.attack import Level
from ...attacks.vertical.attack import VerticalAttack, VerticalEvidence, VerticalKnowledge
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.datasets import load_dataset
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, Runs, StepEvent, run_vertical
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.task import VerticalTask, build_vertical_task
from ...fl.vertical.view import VerticalRecorder
from ..vertical.dependence import dependent
from .check import (
    Check,
    Subject,
    built,
    can_be_sent,
    check_repeated_claims,
    check_repeated_evidence,
    defined,
    equal,
    no_global_randomness,
    require,
)

_PEOPLE, _REPLICAS = 24, 3
_SUMS = 8
"""Random sums of all messages and parameters by which runs are compared."""


@cache
def _task(*, summed: bool) -> VerticalTask:
    """Digits, even or odd, in two halves at two parties; a third party holds the labels."""
    digits = load_dataset("digits")
    halves = replace(
        digits,
        train_labels=digits.train_labels % 2,
        test_labels=digits.test_labels % 2,
        classes=2,
        train_masks=None,
        test_masks=None,
        strokes=False,
    )
    hidden = () if summed else (6,)
    streams = Streams(3)
    return build_vertical_task(halves, streams=streams, people=_PEOPLE, public=30, hidden=hidden, summed=summed)


def _plans() -> Iterator[tuple[VerticalTask, VerticalPlan]]:
    """Plans that are tried in turn, until the defense accepts one."""
    for summed, frozen, batch in ((False, False, 8), (False, True, 8), (True, False, 8), (True, True, _PEOPLE)):
        task = _task(summed=summed)
        settings = {"epochs": 1 if batch == _PEOPLE else 2, "batch": batch}
        plan = VerticalPlan(people=_PEOPLE, network=task.network, learning_rate=0.1, frozen=frozen, **settings)
        yield task, plan


def _prepared(defense: VerticalDefense) -> tuple[VerticalTask, VerticalPlan, VerticalPrepared]:
    refusals = []
    for task, plan in _plans():
        try:
            found = defense.prepare(plan)
        except ValueError as error:
            refusals.append(str(error))
            continue
        sound = isinstance(found, VerticalPrepared) and isinstance(found.protection, VerticalProtection)
        require(sound, f"prepare(plan) must return VerticalPrepared(protection, claims), got {type(found).__name__}")
        return task, plan, found
    raise ValueError(f"it refuses every plan: {'; '.join(dict.fromkeys(refusals))}")


def prepares(subject: Subject) -> str | None:
    """It prepares a protection and claims for a vertical plan, or refuses the plan with a ValueError."""
    prepared = _prepared(subject.make())[2]
    for other, found in _accepted(subject.make()):
        require(all(claim.rounds <= other.epochs for claim in found.claims), "a claim covers more epochs than the plan")
        laws = set(found.laws) <= {claim.claim_id for claim in found.claims}
        require(laws, "a law has no claim: laws are filed under the id of their claim")
    return "; ".join(claim.describe() for claim in prepared.claims) or "states no claim"


def _accepted(defense: VerticalDefense) -> Iterator[tuple[VerticalPlan, VerticalPrepared]]:
    """All plans that the defense accepts, and what it prepares for them."""
    for _, plan in _plans():
        try:
            yield plan, defense.prepare(plan)
        except ValueError:
            continue


def claims_repeat(subject: Subject) -> str | None:
    """Its claims are the same at every preparation and survive being written and read."""
    check_repeated_claims(*(_prepared(subject.make())[2].claims for _ in range(2)))
    return None


def trains(subject: Subject) -> str | None:
    """A small federation trains under it, with finite numbers, and equal streams give equal models."""
    task, plan, prepared = _prepared(subject.make())
    with no_global_randomness():
        first, again = (_numbers(_trained(task, plan, prepared)) for _ in range(2))
    require(bool(np.isfinite(first).all()), "a model holds NaN or infinity")
    require(bool((first == again).all()), "equal streams give other models: it keeps state or draws elsewhere")
    return None


def draws_from_streams(subject: Subject) -> str | None:
    """A defense that publishes its noise draws it from the generator that it receives."""
    task, plan, prepared = _prepared(subject.make())
    if not prepared.laws:
        return "publishes no law"
    first, other = (_numbers(_trained(task, plan, prepared, block=block)) for block in (0, 1))
    require(bool((first != other).any()), "other generators give equal models: its noise is drawn elsewhere, or not")
    return None


def replicas_are_apart(subject: Subject) -> str | None:
    """No run of a batch depends on the data, or on the noise, of another run of it."""
    task, plan, prepared = _prepared(subject.make())
    labels = task.people.labels.repeat(_REPLICAS, 1)
    changed = labels.clone()
    changed[-1] = 1 - changed[-1]
    first, other = (
        _numbers(_trained(task, plan, prepared, planted=Planted(labels=planted))) for planted in (labels, changed)
    )
    same = equal(first[:-1], other[:-1])
    require(same, "a run depends on the labels of another run of its batch: it mixes replicas, or draws by the data")
    words = dependent(lambda block, runs: _sums(task, plan, prepared, Runs(replicas=runs, block=block)))
    require(not words, words)
    return None


class _Messages:
    """A recorder of all messages."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        self.found += [values.flatten(1) for values in (*event.embeddings, *event.gradients)]


def _sums(task: VerticalTask, plan: VerticalPlan, prepared: VerticalPrepared, runs: Runs) -> np.ndarray:
    """Random sums of all that is sent and published in some runs, (runs, sums)."""
    sent = _Messages()
    final = run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, recorders=[sent])
    numbers = np.concatenate([_numbers(final), torch.cat(sent.found, dim=1).numpy()], axis=1)
    weights = np.random.default_rng(0).standard_normal((numbers.shape[1], _SUMS))
    return np.asarray(np.nan_to_num(numbers).astype(np.float64) @ weights)


def _trained(
    task: VerticalTask,
    plan: VerticalPlan,
    prepared: VerticalPrepared,
    *,
    block: int = 0,
    planted: Planted | None = None,
) -> VerticalModels:
    runs = Runs(replicas=_REPLICAS, block=block)
    return run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, planted=planted)


def _numbers(models: VerticalModels) -> np.ndarray:
    layers = [layer.flatten(1) for layers in (*models.bottoms, models.top) for layer in layers]
    return np.asarray(torch.cat(layers, dim=1).numpy())


def _evidence(attack: VerticalAttack) -> VerticalEvidence | None:
    """What the attack returns on a federation without a defense; None where it is not defined there."""
    task, plan = next(_plans())
    streams, people = Streams(1), task.people
    recorder = VerticalRecorder(observer=attack.observer)
    final = run_vertical(task, plan, VerticalProtection(), streams, recorders=[recorder], speeds=attack.speeds(0))
    worst = attack.level is Level.WORST_CASE
    knowledge = VerticalKnowledge(
        level=attack.level,
        plan=plan,
        public=task.public,
        prior=torch.full((2,), 0.5, dtype=torch.float64),
        known=torch.arange(6),
        known_labels=people.labels[:6],
        initial=task.network.initial(streams),
        candidates=people.chosen(torch.arange(10)) if attack.infers == "membership" else None,
        final=final if worst else None,
        columns=people.columns if worst else None,
    )
    view = recorder.view(plan, final, columns=people.columns, labels=people.labels)
    return defined(lambda: attack.run(view, knowledge, np.random.default_rng(5)))


def runs(subject: Subject) -> str | None:
    """It runs on a small vertical federation, and returns evidence in the setting of its observer."""
    attack: VerticalAttack = subject.make()
    evidence = _evidence(attack)
    if evidence is None:
        return "not defined on a federation without a defense"
    seen = evidence.setting.observer
    require(seen == attack.observer, f"its evidence names {seen}, not {attack.observer}")
    wanted = {"labels": "PersonLabels", "columns": "PersonColumns", "membership": "CandidateScores"}[attack.infers]
    require(type(evidence).__name__ == wanted, f"it infers {attack.infers} and must return {wanted}")
    return wanted


def repeats(subject: Subject) -> str | None:
    """Equal generators give equal evidence, and no global generator is used."""
    check_repeated_evidence(partial(_evidence, subject.make()))
    return None


DEFENSE_CHECKS: tuple[Check, ...] = (
    built,
    prepares,
    claims_repeat,
    trains,
    draws_from_streams,
    replicas_are_apart,
    can_be_sent,
)
ATTACK_CHECKS: tuple[Check, ...] = (built, runs, repeats, can_be_sent)
