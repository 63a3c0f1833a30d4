"""Base class of attacks on vertical federations, in which parties hold different columns of the same people."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import CandidateScores, Design, PersonColumns, PersonLabels, Setting
from ...audit.observer import PASSIVE_PARTY, Observer
from ...fl.vertical.law import VerticalLaw
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.task import People
from ...fl.vertical.view import VerticalView
from ..attack import AttackPart, Level

VerticalEvidence = PersonLabels | PersonColumns | CandidateScores


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalKnowledge:
    """The information that an adversary has in addition to its view.

    Args:
        plan: the federation's public facts, with the architecture of all models.
        public: people of the same distribution, with all columns and labels.
        prior: (classes,), the share of each class, which is public.
        known: (m,), numbers of a few people whose labels the adversary has from elsewhere; attacks on labels leave them
            out of their result.
        known_labels: (m,), their labels.
        initial: the public models from which training starts, one replica.
        law: the public description of the noise in what the observer receives, where the defense publishes one.
        candidates: people whose membership is to be inferred, the first columns of ``CandidateScores``; None where the
            attack infers something else.
        final: the final models of all parties, first replica, for attacks on federations that publish them; else None.
        columns: (n, width) per party, of all people; None unless the adversary knows everything but labels (worst
            case).
    """

    level: Level
    plan: VerticalPlan
    public: People
    prior: Tensor
    known: Tensor
    known_labels: Tensor
    initial: VerticalModels
    law: VerticalLaw | None = None
    candidates: People | None = None
    final: VerticalModels | None = None
    columns: tuple[Tensor, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class VerticalAttack(AttackPart, ABC):
    """The base class of attacks on a vertical federation.

    ``infers``: what the attack finds out, ``labels``, ``columns`` or ``membership``; it returns ``PersonLabels``,
    ``PersonColumns`` or ``CandidateScores``.
    """

    observer: ClassVar[Observer] = PASSIVE_PARTY
    infers: ClassVar[Literal["labels", "columns", "membership"]] = "labels"

    def speeds(self, party: int) -> Mapping[int, float]:
        """Return the factors on passive parties' learning rates, by party, in a federation in which the passive party
        ``party`` carries out this attack; empty, the default, if it keeps to the protocol.
        """
        return {}

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> VerticalEvidence:
        """Carry out the attack on the first replica (independent run) of a view; all its randomness comes from
        ``rng``.
        """
        raise TypeError(f"every attack must define run(view, knowledge, rng), but {type(self).__name__} does not")


def setting_of(view: VerticalView, unit: Unit = Unit.LABEL) -> Setting:
    """Return the setting of an attack on one run, whose scores of different people share the run's noise."""
    return Setting(
        unit=unit,
        adjacency=Adjacency.REPLACE_ONE,
        observer=view.observer,
        rounds=view.plan.epochs,
        design=Design.CLUSTERED,
    )
