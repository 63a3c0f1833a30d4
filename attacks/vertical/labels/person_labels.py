"""Base classes of attacks that score the possible labels of each person."""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ....audit.evidence import PersonLabels
from ....audit.observer import PASSIVE_PARTY, Observer
from ....fl.fields import check_count
from ....fl.vertical.view import StepView, VerticalView
from ..attack import VerticalAttack, VerticalKnowledge, setting_of


@dataclass(frozen=True, kw_only=True)
class PersonLabelAttack(VerticalAttack, ABC):
    """A base class of attacks that score the possible labels of all people whose label the adversary does not know."""

    observer: ClassVar[Observer] = PASSIVE_PARTY
    infers: ClassVar[Literal["labels"]] = "labels"

    def evidence(self, scores: Tensor, view: VerticalView, knowledge: VerticalKnowledge) -> PersonLabels:
        """Return the attack's result, without the people whose labels are known.

        ``scores``: (people, classes) of all people, higher means more likely.
        """
        unknown = torch.ones(len(scores), dtype=torch.bool)
        unknown[knowledge.known] = False
        people = unknown.nonzero().squeeze(1)
        return PersonLabels(scores[people].double().numpy(), people.numpy(), setting_of(view))


@dataclass(frozen=True, kw_only=True)
class GradientLabelAttack(PersonLabelAttack, ABC):
    """A base class of attacks on the gradients that a passive party receives about each person.

    Args:
        epochs: the first epochs whose gradients are used, or ``"all"``.
    """

    epochs: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        if self.epochs != "all":
            check_count("epochs", self.epochs, alternative=' or "all"')

    def by_epoch(self, view: VerticalView, values: Callable[[StepView, Tensor], Tensor]) -> Tensor:
        """Return ``values`` of each person in each used epoch, ``(epochs, people, k)``.

        ``values``: (step, its gradients (b, embedding) in double precision) -> (b, k); steps are visited in order.

        Raises ValueError for a view without gradients.
        """
        last = max((step.epoch for step in view.steps), default=0)
        epochs = last + 1 if self.epochs == "all" else min(self.epochs, last + 1)
        found: list[Tensor] = []
        for step in view.steps:
            if step.epoch >= epochs:
                break
            rows = values(step, gradients_of(step))
            if len(found) <= step.epoch:
                found.append(rows.new_zeros(view.plan.people, rows.shape[1]))
            found[step.epoch][step.people] = rows
        if not found:
            raise ValueError("view must hold the steps of a passive party, got none")
        return torch.stack(found)


def gradients_of(step: StepView) -> Tensor:
    """Return the gradients ``(b, embedding)`` that a passive party received in a step, in double precision.

    Raises ValueError for a view of another observer.
    """
    if step.gradients is None:
        raise ValueError(f"view of step {step.step} must hold the gradients that a passive party receives, got none")
    return step.gradients[0].double()


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows of length 1; a row of zeros stays one."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / lengths.clamp_min(1e-30)


def scores_by_share(values: Tensor, share: float) -> Tensor:
    """Return scores ``(n, 2)`` of two classes from ``values (n,)`` that are larger for the second one, with a share of
    this size of all people scored higher for it.
    """
    score = values - torch.quantile(values, 1 - share)
    return torch.stack([-score, score], dim=1)
