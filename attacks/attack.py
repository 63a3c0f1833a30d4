"""Base classes of attacks, which use an adversary's view and knowledge, never the true members, images or labels."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import (
    AttributeScores,
    CandidateScores,
    Design,
    Exposures,
    LabelCounts,
    Projections,
    PropertyEstimates,
    Reconstructions,
    Setting,
    SourceScores,
    TokenGuesses,
)
from ..audit.observer import UPLOADS, Observer
from ..fl.canary import Canary, CanarySet, DataCanary
from ..fl.candidates import Candidates, OwnerCandidates, PlantedCandidates, PlantedOwners
from ..fl.fields import check_fields
from ..fl.laws import Law
from ..fl.models.network import Network
from ..fl.objective import CLASSIFICATION
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.recorder import View
from ..fl.task import Task
from .shadow_bank import ShadowBank

Evidence = (
    CandidateScores
    | SourceScores
    | AttributeScores
    | PropertyEstimates
    | LabelCounts
    | TokenGuesses
    | Exposures
    | Reconstructions
    | Projections
)


class Undefined(ValueError):
    """The error raised when an attack cannot be carried out against a defense; the attack's result records
    the reason.
    """


class Level(StrEnum):
    """The amount of knowledge that an adversary has in addition to its view: realistic or worst-case."""

    REALISTIC = "realistic"
    WORST_CASE = "worst_case"
    """Everything except whether the candidate or canary is present: what differential privacy assumes."""


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """Two hypotheses about each of m candidates: the release includes it, or does not include it. The adversary knows
    the contribution of everybody else.

    Only the likelihood ratio of the release that was seen is given. An attack that could evaluate another release, or
    other gradients than the candidates', could compute the candidate's presence from the rest.

    Args:
        log_ratio: (m,), log density of the release with the candidate drawn minus that without it, double precision.
        rate: probability that the candidate is drawn if it is among the samples.
    """

    log_ratio: Tensor
    rate: float


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """The information that an adversary has in addition to its view of the training.

    Args:
        level: how much it knows.
        network: model and loss.
        plan: the federation's public facts.
        law: (observer, client) -> the law of the release, where the defense publishes one.
        public_images, public_labels: data of the same distribution, ``(n, c, h, w)`` in [0, 1] and ``(n,)``.
        candidates: samples, clients or users whose membership is to be inferred, without the truth.
        canary: what is planted; whether it is present (of a canary set: which canaries are) is not known.
        initial: (d,), the public model from which training starts.
        hypotheses: (round, client, which candidates) -> how likely that round's release is with and without each
            candidate in the client's lot; worst case only.
        shadows: logits of the candidates under models that the adversary trained by the same plan.
        columns: of rows of a table, the name of each column and the number of its features; empty: not known.
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
    hypotheses: Callable[[int, int, slice], Hypotheses] | None = None
    shadows: ShadowBank | None = None
    columns: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls, task: Task, plan: Plan, protection: Protection, *, level: Level = Level.REALISTIC, **more: Any
    ) -> "Knowledge":
        """Return the public knowledge about a federation: its plan, its model, the defense's noise distributions and
        public images.

        ``more``: the other fields.
        """
        return cls(
            level=level,
            network=task.network,
            plan=plan,
            law=lambda observer, client: protection.law(observer, plan, client),
            public_images=task.test_images,
            public_labels=task.test_labels,
            columns=task.columns,
            **more,
        )


def clustered_setting(view: View, unit: Unit, adjacency: Adjacency, *, rounds: int | None = None) -> Setting:
    """Return the setting (unit, adjacency, observer, rounds) of attack scores that all come from one training run and
    therefore share its noise.

    It covers all rounds of the plan unless ``rounds`` is given.

    Such pieces are not independent trials. They are not an audit in one run either: candidates are members or
    non-members by a fixed split, not by one coin each, so such scores judge no claim.
    """
    return Setting(
        unit=unit,
        adjacency=adjacency,
        observer=view.observer,
        rounds=rounds or view.plan.rounds,
        design=Design.CLUSTERED,
    )


@dataclass(frozen=True, kw_only=True)
class AttackPart:
    """The base class of all attacks, of every kind of federated learning; each file holds one attack. The fields of a
    subclass are the attack's public configuration, and their types state which values they refuse
    (``fl.fields.check_fields``).

    ``null`` marks a baseline that ignores its view: the result of guessing without any observation.
    """

    version: ClassVar[str] = "1"
    null: ClassVar[bool] = False
    observer: ClassVar[Observer] = UPLOADS
    active: ClassVar[bool] = False
    """Whether the adversary deviates from the protocol."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def level(self) -> Level:
        """Return the level of knowledge that the attack needs."""
        return Level.REALISTIC

    @property
    def adversary(self) -> str:
        """Return the adversary's name: ``active`` if it deviates from the protocol, else ``realistic`` or
        ``worst_case`` by its level of knowledge.
        """
        return "active" if self.active else self.level.value

    def fields(self) -> dict[str, object]:
        """Return the attack's configuration, a dictionary from field names to values; it identifies the attack in
        result rows.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class Attack(AttackPart, ABC):
    """The base class of attacks on a federation of clients (horizontal federated learning).

    The server of an ``active`` attack sends to clients what ``tamper`` makes of its models; such an attack gets a
    federation of its own.
    """

    handles_reduced_views: ClassVar[bool] = False
    """Whether the attack itself handles views with less than the uploads: multisets, sums, global models."""

    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)
    """The tasks of models that it attacks, by the names of ``fl.objective``; by default those with one class per
    sample.
    """

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedCandidates | PlantedOwners | None:
        """Choose the candidates before training starts; return None if the attack needs no candidates."""
        return None

    def tamper(self, models: Tensor, knowledge: Knowledge) -> Tensor:
        """Return the models that the server of an active attack sends to clients in place of the global models; both
        are arrays ``(R, d)`` with one row per run.
        """
        return models

    @abstractmethod
    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Evidence:
        """Carry out the attack and return its evidence (scores, images or label counts); all its randomness comes from
        ``rng``.
        """

    @property
    def reconstructs(self) -> bool:
        """Return whether the attack returns reconstructed images, which can be scored only on image data.

        The return annotation of ``run`` decides it.
        """
        # By annotation, so that a suite can refuse a mismatch before anything runs. It is text under postponed
        # evaluation of annotations.
        return type(self).run.__annotations__.get("return") in (Reconstructions, Reconstructions.__name__)
