"""Attack: what an observer does with its view and its knowledge. It never gets the truth."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import CandidateScores, Design, LabelCounts, Projections, Reconstructions, Setting, SourceScores
from ..audit.observer import UPLOADS, Observer
from ..fl.canary import Canary, CanarySet, DataCanary
from ..fl.laws.law import Law
from ..fl.models.network import Network
from ..fl.plan import Plan
from ..fl.probe import CandidateProbe, Candidates, OwnerCandidates, OwnerProbe
from ..fl.protection import Protection
from ..fl.task import Task
from ..fl.view import View
from .shadow_bank import ShadowBank

Evidence = CandidateScores | SourceScores | LabelCounts | Reconstructions | Projections


class Undefined(ValueError):
    """The attack cannot be carried out against this defense; the run says so in a row of its own."""


class Level(StrEnum):
    """What the attacker is given besides its view."""

    REALISTIC = "realistic"
    WORST_CASE = "worst_case"
    """Everything but the one bit: what differential privacy assumes."""


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """Two worlds for each of m candidates: what else is in a release is known, whether the candidate is too is not.

    Only how the release that was seen lies to them is told: who could ask about another one, or about other gradients
    than the candidates', would read the one bit off the rest.

    Args:
        log_ratio: (m,), log density of the release with the candidate drawn, minus that without it, doubles.
        rate: chance that the candidate is drawn where it is among the samples.
    """

    log_ratio: Tensor
    rate: float


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the attacker has besides the view.

    Args:
        level: how much it is given.
        network: model and loss.
        plan: the federation's public facts.
        law: (observer, client) -> the law of the release, where the defense publishes one.
        public_images, public_labels: data of the same distribution, ``(n, c, h, w)`` in [0, 1] and ``(n,)``.
        candidates: samples or people whose membership is asked, without the answer.
        canary: what is planted; which world it is, or which of a crowd are in, is not known.
        initial: (d,), the model that training starts from: public.
        worlds: (round, client, which candidates) -> what was seen of that round, with and without each candidate in
            that client's lot; worst case only.
        shadows: what models that the attacker trained by the same plan say of the candidates.
    """

    level: Level
    network: Network
    plan: Plan
    law: Callable[[Observer, int], Law | None]
    public_images: Tensor
    public_labels: Tensor
    candidates: Candidates | OwnerCandidates | None = None
    canary: Canary | DataCanary | CanarySet | None = None
    initial: Tensor | None = None
    worlds: Callable[[int, int, slice], Hypotheses] | None = None
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


def one_run(view: View, unit: Unit, adjacency: Adjacency, *, rounds: int | None = None) -> Setting:
    """Of evidence whose pieces share one run and its noise, over all its rounds unless told: no independent trials.

    Nor is it a crowd's one run: planted candidates are members and outsiders by a fixed split, not by a coin each, so
    that such scores judge no claim. Where coins were tossed it is for whoever tossed them to say so.
    """
    return Setting(
        unit=unit,
        adjacency=adjacency,
        observer=view.observer,
        rounds=rounds or view.plan.rounds,
        design=Design.CLUSTERED,
    )


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack a file. Fields are its public configuration.

    ``null`` marks an attack that ignores its view: what anybody could say without looking.
    """

    version: ClassVar[str] = "1"
    null: ClassVar[bool] = False
    observer: ClassVar[Observer] = UPLOADS
    seated: ClassVar[bool] = False
    """Whether it reads by itself what one sees who sees less than the uploads: multisets, sums, global models."""

    pixelwise: ClassVar[bool] = False
    """Whether it can do without labels of images, of which a segmentation has none: its labels are pixels'."""

    active: ClassVar[bool] = False
    """Whether the server sends what ``tamper`` makes of its models: such an attack has a federation of its own."""

    @property
    def level(self) -> Level:
        """The knowledge that it needs."""
        return Level.REALISTIC

    @property
    def adversary(self) -> str:
        """Whom it stands for: ``realistic`` or ``worst_case`` by its level, or ``active`` where the server deviates."""
        return "active" if self.active else self.level.value

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe | OwnerProbe | None:
        """Choose candidates before training starts; None where the attack needs none."""
        return None

    def tamper(self, models: Tensor, knowledge: Knowledge) -> Tensor:
        """What an active attack's server sends in place of ``models (R, d)``."""
        return models

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
