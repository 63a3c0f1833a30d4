"""Conformance checks of defenses of, and attacks on, transfers by answers."""

from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Level
from ...attacks.transfer.vote_attack import VoteAttack, VoteKnowledge
from ...audit.evidence import VoteScores
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...defenses.transfer.gnmax import GNMax
from ...fl.data.datasets import load_dataset
from ...fl.partitions.partitions import IID
from ...fl.streams import Streams
from ...fl.task import build_task
from ...fl.transfer.engine import run_transfer
from ...fl.transfer.plan import TransferPlan
from ...fl.transfer.protection import TransferProtection, counts_of, votes_of
from ...fl.transfer.recorder import AnswerRecorder
from ...fl.transfer.training import TrainingRule
from ...fl.transfer.transfer_task import TransferTask, transfer_task
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

_TEACHERS, _QUERIES, _REPLICAS = 10, 6, 3


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


def _prepared(defense: TransferDefense) -> PreparedTransfer:
    found = defense.prepare(_transfer()[1])
    sound = isinstance(found, PreparedTransfer) and isinstance(found.protection, TransferProtection)
    require(sound, f"prepare(plan) must return PreparedTransfer(protection, claims), got {type(found).__name__}")
    return found


def prepares(subject: Subject) -> str | None:
    """It prepares a protection and claims for the plan of a transfer, or refuses the plan with a ValueError."""
    claims = _prepared(subject.make()).claims
    require(all(claim.rounds == 1 for claim in claims), "a claim covers more rounds than the one of a transfer")
    return "; ".join(claim.describe() for claim in claims) or "states no claim"


def claims_repeat(subject: Subject) -> str | None:
    """Its claims are the same at every preparation and survive being written and read."""
    check_repeated_claims(*(_prepared(subject.make()).claims for _ in range(2)))
    return None


def answers_and_trains(subject: Subject) -> str | None:
    """Teachers answer and students train under it, with finite numbers, and equal streams give equal students."""
    prepared = _prepared(subject.make())
    with no_global_randomness():
        first, again = (_students(prepared) for _ in range(2))
    require(bool(first.isfinite().all()), "a student holds NaN or infinity")
    require(equal(first, again), "equal streams give other students: it keeps state or draws elsewhere")
    return None


def _students(prepared: PreparedTransfer) -> Tensor:
    return run_transfer(*_transfer(), prepared.protection, Streams(1), replicas=_REPLICAS)


def _evidence(attack: VoteAttack) -> VoteScores | None:
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


def runs(subject: Subject) -> str | None:
    """It runs on a small transfer under GNMax, and returns scores of all queries in the setting of its observer."""
    attack: VoteAttack = subject.make()
    evidence = _evidence(attack)
    if evidence is None:
        return "not defined on a transfer under GNMax"
    require(isinstance(evidence, VoteScores), f"it must return VoteScores, got {type(evidence).__name__}")
    seen, plan = evidence.setting.observer, _transfer()[1]
    require(seen == attack.observer, f"its evidence names {seen}, not {attack.observer}")
    wanted = (plan.queries, plan.classes)
    require(evidence.values.shape == wanted, f"its scores have shape {evidence.values.shape}, not {wanted}")
    return None


def repeats(subject: Subject) -> str | None:
    """Equal generators give equal scores, and no global generator is used."""
    check_repeated_evidence(partial(_evidence, subject.make()))
    return None


DEFENSE_CHECKS: tuple[Check, ...] = (built, prepares, claims_repeat, answers_and_trains, can_be_sent)
ATTACK_CHECKS: tuple[Check, ...] = (built, runs, repeats, can_be_sent)
