"""Base class of attacks that infer one teacher's votes from what an observer of a transfer is given."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Unit
from ...audit.evidence import Design, Setting, VoteScores
from ...audit.observer import ANSWERS, Observer
from ...fl.fields import Index
from ...fl.transfer.protection import AnswerLaw, LabelLaw, ReleasedLabels, TransferProtection
from ...fl.transfer.recorder import TransferView
from ...fl.transfer.task import TransferPlan
from ..attack import AttackPart, Level

LEAST = -1e300
"""The log-likelihood of what is impossible: scores must be finite."""


@dataclass(frozen=True, kw_only=True)
class VoteKnowledge:
    """The information that an adversary has in addition to its view of a transfer.

    Args:
        level: how much it knows.
        plan: the public facts.
        label_law, answer_law: the distributions that the defense publishes; None where it publishes none.
        others: (queries, classes), the votes of all other teachers; worst case only.
    """

    level: Level
    plan: TransferPlan
    label_law: LabelLaw | None
    answer_law: AnswerLaw | None
    others: FloatArray | None = None

    @classmethod
    def of(
        cls, plan: TransferPlan, protection: TransferProtection, *, others: FloatArray | None = None
    ) -> "VoteKnowledge":
        """Return the public knowledge about a transfer, with the other teachers' votes where they are known."""
        return cls(
            level=Level.REALISTIC if others is None else Level.WORST_CASE,
            plan=plan,
            label_law=protection.label_law(plan),
            answer_law=protection.answer_law(plan),
            others=others,
        )


@dataclass(frozen=True, kw_only=True)
class VoteAttack(AttackPart, ABC):
    """The base class of attacks on one teacher's votes. The unit is the teacher: in the neighbouring data set, the
    teacher's client has other data.

    Args:
        teacher: number of the teacher whose votes are in question.
    """

    observer: ClassVar[Observer] = ANSWERS
    teacher: Index = 0

    @abstractmethod
    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        """Carry out the attack on the first run of the view and return one score per query and class; all its
        randomness comes from ``rng``.
        """

    def evidence(self, scores: FloatArray, view: TransferView) -> VoteScores:
        """Return the attack's result. The votes on all queries come from one run, so that their scores depend on the
        same teachers.
        """
        setting = Setting(
            unit=Unit.CLIENT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=view.observer,
            rounds=view.plan.rounds,
            design=Design.CLUSTERED,
        )
        return VoteScores(scores, setting)


def released_of(view: TransferView) -> ReleasedLabels:
    """Return what the student received; raise ValueError for an observer that does not receive it."""
    if view.released is None:
        raise ValueError(f"the attack needs the released labels, which {view.observer} does not observe")
    return view.released
