"""The hooks (methods that the engine calls) through which a defense changes a transfer; by default the label with most
votes is released.

They are called here, in trainings and in audits alike, and what they return is checked. Laws are the public
distributions of a teacher's answer and of a released label, which attacks use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray
from ..hooks import Hooks, wrong_return
from ..protection import State
from .task import ABSTAINED, TransferPlan


class AnswerLaw(Protocol):
    """The interface of the distribution of one teacher's answer to one query, given the teacher's vote."""

    def log_likelihoods(self, answers: FloatArray) -> FloatArray:
        """Return the log density of each answer under each vote: ``answers (..., m)`` become ``(..., classes)``.

        It may be relative to any measure that does not depend on the vote: only ratios are used.
        """
        ...


class LabelLaw(Protocol):
    """The interface of the distribution of one query's released label, given the votes of all teachers.

    The labels of different queries are independent, given the votes.
    """

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        """Return the log probability of each label, followed by that of releasing no label: vote ``counts (...,
        classes)`` become ``(..., classes + 1)``.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TransferContext:
    """The public facts of a transfer that the hooks of a defense (the methods that the engine calls) may use.

    ``replicas``: the number of independent runs, which is the first dimension of every tensor.
    """

    plan: TransferPlan
    replicas: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedLabels:
    """The labels that the student receives, with everything that is published with them.

    Args:
        labels: (R, queries) int64, the label of each public sample; ``ABSTAINED`` where none is released.
        numbers: named numbers that are published with the labels, each ``(R, ...)``, such as an epsilon.
    """

    labels: Tensor
    numbers: Mapping[str, Tensor] = field(default_factory=dict)


class TransferProtection(Hooks):
    """The base class of protections of a transfer, which protects nothing; a defense overrides the hooks (methods that
    the engine calls) that it needs.

    State goes in and out and generators are arguments, so that one object serves a thousand replicas. Replicas are the
    first dimension of every tensor. A hook draws all its randomness from the generator that it receives.
    """

    def initial_state(self, plan: TransferPlan) -> State:
        """Return the defense's public state before the first query."""
        return {}

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Turn each teacher's logits into the answers that it sends: ``(R, teachers, queries, classes)`` into ``(R,
        teachers, queries, m)``.

        A teacher's answers depend on its own logits alone. By default they are one-hot votes.
        """
        return votes_of(logits)

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[ReleasedLabels, State]:
        """Compute from the answers of all teachers, ``(R, teachers, queries, m)``, what the student receives; also
        return the public state afterwards.

        By default it is the label with the largest sum of answers, the first one of equal sums.
        """
        return ReleasedLabels(labels=counts_of(answers).argmax(-1)), state

    def answer_law(self, plan: TransferPlan) -> AnswerLaw | None:
        """Return the distribution of a teacher's answer; None if the defense publishes none."""
        return None

    def label_law(self, plan: TransferPlan) -> LabelLaw | None:
        """Return the distribution of a released label; None if the defense publishes none."""
        return None


def votes_of(logits: Tensor) -> Tensor:
    """Return one-hot votes for the class of the largest logit, in the shape ``(R, ..., classes)`` of ``logits``."""
    return _of_each_run(logits, lambda part: one_hot(part.argmax(-1), part.shape[-1]).to(torch.float32))


def counts_of(answers: Tensor) -> Tensor:
    """Return the sum of the answers over the teachers: ``(R, teachers, queries, m)`` become ``(R, queries, m)``."""
    return _of_each_run(answers, lambda part: part.sum(1))


def _of_each_run(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function without randomness to the replicas; equal ones, which share their memory, are computed once."""
    if len(tensor) > 1 and tensor.stride(0) == 0:
        once = function(tensor[:1])
        return once.expand(len(tensor), *once.shape[1:])
    return function(tensor)


def sent_answers(
    protection: TransferProtection, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
) -> Tensor:
    """Return the answers that the teachers send: ``logits (R, teachers, queries, classes)`` become ``(R, teachers,
    queries, m)``.

    Raises:
        ValueError: if the hook ``teacher_answers`` returns anything but finite numbers of this shape.
    """
    found: Any = protection.teacher_answers(logits, context, state, rng)
    words = f"finite numbers of shape (replicas, teachers, queries, m) = ({', '.join(map(str, logits.shape[:3]))}, m)"
    right = isinstance(found, Tensor) and found.ndim == 4 and found.shape[:3] == logits.shape[:3]
    _require("teacher_answers", right, f"a torch.Tensor of {words}", found)
    answers: Tensor = found
    # Equal runs share their memory, and one of them shows what all hold.
    once = answers[:1] if answers.stride(0) == 0 else answers
    # A NaN would win every comparison of sums, and one teacher would choose the label.
    _require("teacher_answers", bool(once.isfinite().all()), words, "NaN or infinity")
    return answers


def released_labels(
    protection: TransferProtection, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
) -> ReleasedLabels:
    """Return what the student receives, computed from answers ``(R, teachers, queries, m)``.

    Raises:
        ValueError: if the hook ``aggregate_votes`` returns anything but one label or none for each query of each run,
            numbers with one row per run, and a state.
    """
    found: Any = protection.aggregate_votes(answers, context, state, rng)
    right = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], ReleasedLabels)
    _require("aggregate_votes", right, "a tuple (ReleasedLabels(labels=...), state)", found)
    released: ReleasedLabels = found[0]
    _check_labels(released.labels, context)
    for name, number in released.numbers.items():
        right = isinstance(number, Tensor) and number.ndim >= 1 and len(number) == context.replicas
        words = f"number {name} as a torch.Tensor with one row per replica, ({context.replicas}, ...)"
        _require("aggregate_votes", right, words, number)
    return released


def _check_labels(labels: Any, context: TransferContext) -> None:
    wanted, last = (context.replicas, context.plan.queries), context.plan.classes - 1
    # Torch would broadcast a single row to all replicas silently, and they would share their noise.
    right = isinstance(labels, Tensor) and tuple(labels.shape) == wanted and labels.dtype is torch.int64
    words = f"labels as a torch.Tensor of torch.int64 and shape (replicas, queries) = {wanted}"
    _require("aggregate_votes", right, words, labels)
    low, high = int(labels.min()), int(labels.max())
    words = f"labels in 0..{last}, or {ABSTAINED} for a query without a label"
    _require("aggregate_votes", ABSTAINED <= low <= high <= last, words, f"{low} to {high}")


def _require(hook: str, right: bool, allowed: str, returned: Any) -> None:
    if not right:
        raise wrong_return(hook, allowed, returned)
