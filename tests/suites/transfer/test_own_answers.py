"""Audits of a user's own hooks run what a training runs: each teacher's answers, and then the aggregator."""

import math
from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.observer import ANSWERS
from fedassay.defenses.transfer.defense import PreparedTransfer, TransferDefense
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection, counts_of, votes_of
from fedassay.suites.config.tables.other_federations import TransferSpec
from fedassay.suites.results.cell import Cell
from fedassay.suites.transfer import TransferAuditJob

RULE = {"steps": 5, "learning_rate": 0.05}
EPSILON = 2.0


def laplace_max(scores, scale, rng):
    noise = torch.from_numpy(rng.laplace(scale=scale, size=tuple(scores.shape)))
    return (scores.double() + noise).argmax(-1)


@dataclass(frozen=True, kw_only=True)
class RandomResponse(TransferProtection):
    """Teachers keep a vote with probability ``keep``, and otherwise draw it uniformly."""

    keep: float

    def teacher_answers(self, logits, context, state, rng):
        votes = votes_of(logits)
        drawn = torch.from_numpy(rng.integers(0, votes.shape[-1], size=tuple(votes.shape[:3])))
        kept = torch.from_numpy(rng.random(tuple(votes.shape[:3])) < self.keep).unsqueeze(-1)
        return torch.where(kept, votes, torch.nn.functional.one_hot(drawn, votes.shape[-1]).float())


@dataclass(frozen=True, kw_only=True)
class UnboundedLogits(TransferProtection):
    """Noise for votes, and teachers that send logits of any size."""

    scale: float

    def teacher_answers(self, logits, context, state, rng):
        return 1000 * logits

    def aggregate_votes(self, answers, context, state, rng):
        return ReleasedLabels(labels=laplace_max(counts_of(answers), self.scale, rng)), state


@dataclass(frozen=True, kw_only=True)
class FirstTeacher(TransferProtection):
    """Noise for votes, of which the first teacher's count a hundred times."""

    scale: float
    weight: float = 100.0

    def aggregate_votes(self, answers, context, state, rng):
        weights = torch.ones(answers.shape[1])
        weights[0] = self.weight
        scores = (answers * weights.view(1, -1, 1, 1)).sum(1)
        return ReleasedLabels(labels=laplace_max(scores, self.scale, rng)), state


def keep_of(plan):
    """With k labels, a label's probabilities under two votes have the ratio ``(keep k + 1 - keep) / (1 - keep)``."""
    grown = math.exp(EPSILON / plan.queries) - 1
    return grown / (grown + plan.classes)


PROTECTIONS = {
    "random response": lambda plan: RandomResponse(keep=keep_of(plan)),
    "votes kept": lambda plan: RandomResponse(keep=0.999),
    "unbounded logits": lambda plan: UnboundedLogits(scale=2 * plan.queries / EPSILON),
    "one teacher's votes a hundred times": lambda plan: FirstTeacher(scale=2 * plan.queries / EPSILON),
    "all teachers alike": lambda plan: FirstTeacher(scale=2 * plan.queries / EPSILON, weight=1.0),
}


@dataclass(frozen=True, kw_only=True)
class Own(TransferDefense):
    name: str
    change: str = "replace_one"

    def prepare(self, plan):
        claim = Claim.stated(EPSILON, unit="client", adjacency=self.change, observer=ANSWERS)
        return PreparedTransfer(protection=PROTECTIONS[self.name](plan), claims=(claim,))


def found_of(own, queries=(1,), trials=2000):
    spec = TransferSpec(
        dataset="digits",
        teachers=5,
        queries=8,
        teacher=RULE,
        student=RULE,
        audit={"trials": trials, "queries": queries},
    )
    (claim,) = own.prepare(type("Plan", (), {"queries": 8, "classes": 10})).claims
    job = TransferAuditJob(
        federation=spec, defense=own, claim=claim, seed=0, alpha=0.01, cell=Cell(cell_id="c", facts={})
    )
    return job.found()[0]


HELD = ("random response", "all teachers alike")


@pytest.mark.simulations
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("name", PROTECTIONS)
def test_own_hooks_are_judged_by_what_a_training_runs(name, queries):
    found = found_of(Own(name=name), (queries,))
    assert found.verdict is (Verdict.NOT_REFUTED if name in HELD else Verdict.REFUTED)


def test_a_teacher_that_is_not_there_is_no_input_of_own_hooks():
    found = found_of(Own(name="all teachers alike", change="add_remove"))
    assert found.verdict is Verdict.OUT_OF_SCOPE
    assert "teacher_answers or aggregate_votes of its own" in found.reason


def test_a_number_of_queries_that_is_listed_twice_is_refused():
    with pytest.raises(ValueError, match=r"queries must be different numbers, got \[1, 1\]"):
        found_of(Own(name="random response"), (1, 1))
