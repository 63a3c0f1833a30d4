"""Attack: what an observer does with its view and its knowledge. It never gets the truth."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..audit.evidence import CandidateScores, LabelCounts, Projections, Reconstructions
from ..audit.observer import UPLOADS, Observer
from ..fl.law import Law
from ..fl.network import Network
from ..fl.plan import Plan
from ..fl.probe import Canary, CanaryCrowd, CandidateProbe, Candidates, DataCanary
from ..fl.protection import Protection
from ..fl.task import Task
from ..fl.view import View
from .shadow_bank import ShadowBank

Evidence = CandidateScores | LabelCounts | Reconstructions | Projections


class Undefined(ValueError):
    """The attack cannot be carried out against this defense; the run says so in a row of its own."""


class Level(StrEnum):
    """What the attacker is given besides its view."""

    REALISTIC = "realistic"
    WORST_CASE = "worst_case"
    """Everything but the one bit: what differential privacy assumes."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the attacker has besides the view.

    Args:
        level: how much it is given.
        network: model and loss.
        plan: the federation's public facts.
        law: (observer, client) -> the law of the release, where the defense publishes one.
        public_images, public_labels: data of the same distribution, ``(n, c, h, w)`` in [0, 1] and ``(n,)``.
        candidates: whose membership is asked, without the answer.
        canary: what is planted; which world it is, or which of a crowd are in, is not known.
        initial: (d,), the model that training starts from: public.
        rest: (round, which candidates, their contributions ``(m, d)``) -> what everybody but the candidate itself
            contributed to that client's release, ``(m, d)``; worst case only.
        shadows: what models that the attacker trained by the same plan say of the candidates.
    """

    level: Level
    network: Network
    plan: Plan
    law: Callable[[Observer, int], Law | None]
    public_images: Tensor
    public_labels: Tensor
    candidates: Candidates | None = None
    canary: Canary | DataCanary | CanaryCrowd | None = None
    initial: Tensor | None = None
    rest: Callable[[int, slice, Tensor], Tensor] | None = None
    shadows: ShadowBank | None = None

    @classmethod
    def of(
        cls, task: Task, plan: Plan, protection: Protection, *, level: Level = Level.REALISTIC, **more: Any
    ) -> "Knowledge":
        """What anybody knows of a federation: its plan, its model, the protection's published laws, the public images;
        ``more``: the other fields.
        """
        return cls(
            level=level,
            network=task.network,
            plan=plan,
            law=lambda observer, client: protection.law(observer, plan, client),
            public_images=task.test_images,
            public_labels=task.test_labels,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack a file. Fields are its public configuration.

    ``null`` marks an attack that ignores its view: what anybody could say without looking.
    """

    version: ClassVar[str] = "1"
    null: ClassVar[bool] = False
    observer: ClassVar[Observer] = UPLOADS

    @property
    def level(self) -> Level:
        """The knowledge that it needs."""
        return Level.REALISTIC

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe | None:
        """Choose candidates before training starts; None where the attack needs none."""
        return None

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Evidence:
        """What the attack brings; all its randomness comes from ``rng``."""
        raise TypeError(f"{type(self).__name__} does not define run(view, knowledge, rng)")

    @property
    def reconstructs(self) -> bool:
        """Whether ``run`` says that it brings reconstructions, which need images to be scored."""
        return type(self).run.__annotations__.get("return") in (Reconstructions, Reconstructions.__name__)

    def fields(self) -> dict[str, object]:
        """The configuration by name: part of a cell's identity."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
