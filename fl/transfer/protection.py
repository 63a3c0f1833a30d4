"""Defines the hooks through which a defense changes a transfer; by default the label with most votes is released."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..hooks import Hooks
from ..protection import State
from .law import AnswerLaw, LabelLaw
from .plan import TransferPlan


@dataclass(frozen=True, kw_only=True)
class TransferContext:
    """The public facts of a transfer that a defense's hooks may use.

    ``replicas``: the number of independent runs, which is the first dimension of every tensor.
    """

    plan: TransferPlan
    replicas: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """What the student is given.

    Args:
        labels: (R, queries) int64, the label of each public sample; ``ABSTAINED`` where none is released.
        numbers: named numbers that are published with the labels, each ``(R, ...)``, such as an epsilon.
    """

    labels: Tensor
    numbers: Mapping[str, Tensor] = field(default_factory=dict)


class TransferProtection(Hooks):
    """The base class of protections of a transfer, which protects nothing; a defense overrides the hooks that it uses.

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
    ) -> tuple[Released, State]:
        """Turn the answers of all teachers, ``(R, teachers, queries, m)``, into what the student is given, and return
        the public state after it.

        By default it is the label with the largest sum of answers, the first one of equal sums.
        """
        return Released(labels=counts_of(answers).argmax(-1)), state

    def answer_law(self, plan: TransferPlan) -> AnswerLaw | None:
        """Return the distribution of a teacher's answer; None where the defense publishes none."""
        return None

    def label_law(self, plan: TransferPlan) -> LabelLaw | None:
        """Return the distribution of a released label; None where the defense publishes none."""
        return None


def votes_of(logits: Tensor) -> Tensor:
    """Return one-hot votes for the class of the largest logit, in the shape ``(R, ..., classes)`` of ``logits``."""
    return _of_each_run(logits, lambda part: one_hot(part.argmax(-1), part.shape[-1]).to(torch.float32))


def counts_of(answers: Tensor) -> Tensor:
    """Return the sum over the teachers: ``(R, teachers, queries, m)`` give ``(R, queries, m)``."""
    return _of_each_run(answers, lambda part: part.sum(1))


def _of_each_run(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function without randomness to the replicas; equal ones, which share their memory, are computed once."""
    if len(tensor) > 1 and tensor.stride(0) == 0:
        once = function(tensor[:1])
        return once.expand(len(tensor), *once.shape[1:])
    return function(tensor)
