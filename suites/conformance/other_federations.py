"""Conformance checks of defenses of, and attacks on, vertical federations and transfers by answers."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Level
from ...attacks.transfer.vote_attack import VoteAttack, VoteKnowledge
from ...attacks.vertical.attack import VerticalAttack, VerticalEvidence, VerticalKnowledge
from ...audit.evidence import VoteScores
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...defenses.transfer.gnmax import GNMax
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.datasets import load_dataset
from ...fl.partitions import IID
from ...fl.streams import Runs, Streams
from ...fl.task import build_task
from ...fl.transfer.engine import run_transfer
from ...fl.transfer.protection import TransferProtection, counts_of, votes_of
from ...fl.transfer.recorder import AnswerRecorder
from ...fl.transfer.task import TrainingRule, TransferPlan, TransferTask, transfer_task
from ...fl.vertical.engine import Planted, StepEvent, run_vertical
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.protection import VerticalPlan, VerticalProtection
from ...fl.vertical.task import VerticalTask, build_vertical_task
from ...fl.vertical.view import VerticalRecorder
from ..vertical.runs import dependent
from .check import (
    CheckedPart,
    ConformanceCheck,
    built,
    can_be_sent,
    check_repeated_claims,
    check_repeated_evidence,
    defined,
    equal,
    no_global_randomness,
    require,
)

_PEOPLE, _VERTICAL_RUNS = 24, 3
_SUMS = 8
"""Random sums of all messages and parameters by which runs are compared."""


@cache
def _vertical_task(*, summed: bool) -> VerticalTask:
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


def _vertical_plans() -> Iterator[tuple[VerticalTask, VerticalPlan]]:
    """Plans that are tried in turn, until the defense accepts one."""
    for summed, frozen, batch in ((False, False, 8), (False, True, 8), (True, False, 8), (True, True, _PEOPLE)):
        task = _vertical_task(summed=summed)
        settings = {"epochs": 1 if batch == _PEOPLE else 2, "batch": batch}
        plan = VerticalPlan(people=_PEOPLE, network=task.network, learning_rate=0.1, frozen=frozen, **settings)
        yield task, plan


def _vertical_prepared(defense: VerticalDefense) -> tuple[VerticalTask, VerticalPlan, VerticalPrepared]:
    refusals = []
    for task, plan in _vertical_plans():
        try:
            found = defense.prepare(plan)
        except ValueError as error:
            refusals.append(str(error))
            continue
        sound = isinstance(found, VerticalPrepared) and isinstance(found.protection, VerticalProtection)
        require(sound, f"prepare(plan) must return VerticalPrepared(protection, claims), got {type(found).__name__}")
        return task, plan, found
    raise ValueError(f"it refuses every plan: {'; '.join(dict.fromkeys(refusals))}")


def vertical_prepares(subject: CheckedPart) -> str | None:
    """It prepares a protection and claims for a vertical plan, or refuses the plan with a ValueError."""
    prepared = _vertical_prepared(subject.make())[2]
    for other, found in _vertical_accepted(subject.make()):
        require(all(claim.rounds <= other.epochs for claim in found.claims), "a claim covers more epochs than the plan")
        laws = set(found.laws) <= {claim.claim_id for claim in found.claims}
        require(laws, "a law has no claim: laws are filed under the id of their claim")
    return "; ".join(claim.describe() for claim in prepared.claims) or "states no claim"


def _vertical_accepted(defense: VerticalDefense) -> Iterator[tuple[VerticalPlan, VerticalPrepared]]:
    """All plans that the defense accepts, and what it prepares for them."""
    for _, plan in _vertical_plans():
        try:
            yield plan, defense.prepare(plan)
        except ValueError:
            continue


def vertical_claims_repeat(subject: CheckedPart) -> str | None:
    """Its claims are the same at every preparation and survive being written and read."""
    check_repeated_claims(*(_vertical_prepared(subject.make())[2].claims for _ in range(2)))
    return None


def vertical_trains(subject: CheckedPart) -> str | None:
    """A small federation trains under it, with finite numbers, and equal streams give equal models."""
    task, plan, prepared = _vertical_prepared(subject.make())
    with no_global_randomness():
        first, again = (_vertical_numbers(_vertical_trained(task, plan, prepared)) for _ in range(2))
    require(bool(np.isfinite(first).all()), "a model holds NaN or infinity")
    require(bool((first == again).all()), "equal streams give other models: it keeps state or draws elsewhere")
    return None


def vertical_draws_from_streams(subject: CheckedPart) -> str | None:
    """A defense that publishes its noise draws it from the generator that it receives."""
    task, plan, prepared = _vertical_prepared(subject.make())
    if not prepared.laws:
        return "publishes no law"
    first, other = (_vertical_numbers(_vertical_trained(task, plan, prepared, block=block)) for block in (0, 1))
    require(bool((first != other).any()), "other generators give equal models: its noise is drawn elsewhere, or not")
    return None


def vertical_replicas_are_apart(subject: CheckedPart) -> str | None:
    """No run of a batch depends on the data, or on the noise, of another run of it."""
    task, plan, prepared = _vertical_prepared(subject.make())
    labels = task.people.labels.repeat(_VERTICAL_RUNS, 1)
    changed = labels.clone()
    changed[-1] = 1 - changed[-1]
    first, other = (
        _vertical_numbers(_vertical_trained(task, plan, prepared, planted=Planted(labels=planted)))
        for planted in (labels, changed)
    )
    same = equal(first[:-1], other[:-1])
    require(same, "a run depends on the labels of another run of its batch: it mixes replicas, or draws by the data")
    words = dependent(lambda block, runs: _vertical_sums(task, plan, prepared, Runs(replicas=runs, block=block)))
    require(not words, words)
    return None


class _Messages:
    """A recorder of all messages."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        self.found += [values.flatten(1) for values in (*event.embeddings, *event.gradients)]


def _vertical_sums(task: VerticalTask, plan: VerticalPlan, prepared: VerticalPrepared, runs: Runs) -> np.ndarray:
    """Random sums of all that is sent and published in some runs, (runs, sums)."""
    sent = _Messages()
    final = run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, recorders=[sent])
    numbers = np.concatenate([_vertical_numbers(final), torch.cat(sent.found, dim=1).numpy()], axis=1)
    weights = np.random.default_rng(0).standard_normal((numbers.shape[1], _SUMS))
    return np.asarray(np.nan_to_num(numbers).astype(np.float64) @ weights)


def _vertical_trained(
    task: VerticalTask,
    plan: VerticalPlan,
    prepared: VerticalPrepared,
    *,
    block: int = 0,
    planted: Planted | None = None,
) -> VerticalModels:
    runs = Runs(replicas=_VERTICAL_RUNS, block=block)
    return run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, planted=planted)


def _vertical_numbers(models: VerticalModels) -> np.ndarray:
    layers = [layer.flatten(1) for layers in (*models.bottoms, models.top) for layer in layers]
    return np.asarray(torch.cat(layers, dim=1).numpy())


def _vertical_evidence(attack: VerticalAttack) -> VerticalEvidence | None:
    """What the attack returns on a federation without a defense; None where it is not defined there."""
    task, plan = next(_vertical_plans())
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


def vertical_runs(subject: CheckedPart) -> str | None:
    """It runs on a small vertical federation, and returns evidence in the setting of its observer."""
    attack: VerticalAttack = subject.make()
    evidence = _vertical_evidence(attack)
    if evidence is None:
        return "not defined on a federation without a defense"
    seen = evidence.setting.observer
    require(seen == attack.observer, f"its evidence names {seen}, not {attack.observer}")
    wanted = {"labels": "PersonLabels", "columns": "PersonColumns", "membership": "CandidateScores"}[attack.infers]
    require(type(evidence).__name__ == wanted, f"it infers {attack.infers} and must return {wanted}")
    return wanted


def vertical_repeats(subject: CheckedPart) -> str | None:
    """Equal generators give equal evidence, and no global generator is used."""
    check_repeated_evidence(partial(_vertical_evidence, subject.make()))
    return None


VERTICAL_DEFENSE_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    vertical_prepares,
    vertical_claims_repeat,
    vertical_trains,
    vertical_draws_from_streams,
    vertical_replicas_are_apart,
    can_be_sent,
)
VERTICAL_ATTACK_CHECKS: tuple[ConformanceCheck, ...] = (built, vertical_runs, vertical_repeats, can_be_sent)


_TEACHERS, _QUERIES, _TRANSFER_RUNS = 10, 6, 3


@cache
def _transfer() -> tuple[TransferTask, TransferPlan]:
    """Ten teachers that hold five digits each."""
    task = build_task(
        load_dataset("digits"),
        model="logistic",
        partition=IID(),
        clients=_TEACHERS,
        samples=5 * _TEACHERS,
        streams=Streams(3),
    )
    data, rule = transfer_task(task, queries=_QUERIES, streams=Streams(3)), TrainingRule(steps=3, learning_rate=0.1)
    return data, data.plan(teacher=rule, student=rule)


def _transfer_prepared(defense: TransferDefense) -> PreparedTransfer:
    found = defense.prepare(_transfer()[1])
    sound = isinstance(found, PreparedTransfer) and isinstance(found.protection, TransferProtection)
    require(sound, f"prepare(plan) must return PreparedTransfer(protection, claims), got {type(found).__name__}")
    return found


def transfer_prepares(subject: CheckedPart) -> str | None:
    """It prepares a protection and claims for the plan of a transfer, or refuses the plan with a ValueError."""
    claims = _transfer_prepared(subject.make()).claims
    require(all(claim.rounds == 1 for claim in claims), "a claim covers more rounds than the one of a transfer")
    return "; ".join(claim.describe() for claim in claims) or "states no claim"


def transfer_claims_repeat(subject: CheckedPart) -> str | None:
    """Its claims are the same at every preparation and survive being written and read."""
    check_repeated_claims(*(_transfer_prepared(subject.make()).claims for _ in range(2)))
    return None


def transfer_answers_and_trains(subject: CheckedPart) -> str | None:
    """Teachers answer and students train under it, with finite numbers, and equal streams give equal students."""
    prepared = _transfer_prepared(subject.make())
    with no_global_randomness():
        first, again = (_students(prepared) for _ in range(2))
    require(bool(first.isfinite().all()), "a student holds NaN or infinity")
    require(equal(first, again), "equal streams give other students: it keeps state or draws elsewhere")
    return None


def _students(prepared: PreparedTransfer) -> Tensor:
    return run_transfer(*_transfer(), prepared.protection, Streams(1), replicas=_TRANSFER_RUNS)


def _transfer_evidence(attack: VoteAttack) -> VoteScores | None:
    """What the attack returns on a transfer under GNMax, which publishes a law; None where it is not defined there."""
    data, plan = _transfer()
    protection = GNMax().prepare(plan).protection
    require(attack.teacher < plan.teachers, f"teacher must be below {plan.teachers} here, got {attack.teacher}")
    recorder = AnswerRecorder(observer=attack.observer)
    logits = torch.from_numpy(np.random.default_rng(4).normal(size=(1, plan.teachers, plan.queries, plan.classes)))
    run_transfer(data, plan, protection, Streams(1), logits=logits.float(), recorders=[recorder])
    others = counts_of(votes_of(logits))[0] - votes_of(logits)[0, attack.teacher]
    known = others.double().numpy() if attack.level is Level.WORST_CASE else None
    knowledge = VoteKnowledge.of(plan, protection, others=known)
    return defined(lambda: attack.run(recorder.view, knowledge, np.random.default_rng(5)))


def transfer_runs(subject: CheckedPart) -> str | None:
    """It runs on a small transfer under GNMax, and returns scores of all queries in the setting of its observer."""
    attack: VoteAttack = subject.make()
    evidence = _transfer_evidence(attack)
    if evidence is None:
        return "not defined on a transfer under GNMax"
    require(isinstance(evidence, VoteScores), f"it must return VoteScores, got {type(evidence).__name__}")
    seen, plan = evidence.setting.observer, _transfer()[1]
    require(seen == attack.observer, f"its evidence names {seen}, not {attack.observer}")
    wanted = (plan.queries, plan.classes)
    require(evidence.values.shape == wanted, f"its scores have shape {evidence.values.shape}, not {wanted}")
    return None


def transfer_repeats(subject: CheckedPart) -> str | None:
    """Equal generators give equal scores, and no global generator is used."""
    check_repeated_evidence(partial(_transfer_evidence, subject.make()))
    return None


TRANSFER_DEFENSE_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    transfer_prepares,
    transfer_claims_repeat,
    transfer_answers_and_trains,
    can_be_sent,
)
TRANSFER_ATTACK_CHECKS: tuple[ConformanceCheck, ...] = (built, transfer_runs, transfer_repeats, can_be_sent)
