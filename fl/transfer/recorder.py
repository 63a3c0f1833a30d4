"""Recorders keep what one observer may see of a transfer."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from ...audit.observer import ANSWERS, FINAL_MODEL, UPLOADS, Observer
from .plan import TransferPlan
from .protection import Released
from .view import TransferView

OBSERVERS = (FINAL_MODEL, ANSWERS, UPLOADS)
"""The observers of a transfer, from the weakest to the strongest."""


@dataclass(frozen=True, kw_only=True)
class TransferEvent:
    """All data of one transfer, including what no observer may see; only recorders receive it.

    ``logits (R, teachers, queries, classes)`` are the teachers' own, ``answers (R, teachers, queries, m)`` what they
    sent, ``final_model (R, d)`` the student.
    """

    plan: TransferPlan
    public_images: Tensor
    logits: Tensor
    answers: Tensor
    released: Released
    final_model: Tensor


class TransferRecorder(Protocol):
    """The interface of an object that receives a transfer once, when it has ended."""

    def watch(self, event: TransferEvent) -> None:
        """Receive a finished transfer. The method must not change what it receives."""
        ...


@dataclass(kw_only=True)
class AnswerRecorder:
    """A recorder that keeps what one observer sees; ``teachers`` restricts the answers to those of some teachers."""

    observer: Observer
    teachers: tuple[int, ...] | None = None
    _seen: list[TransferView] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.observer not in OBSERVERS:
            raise ValueError(f"observer of a transfer must be uploads, answers or final_model, got {self.observer}")

    def watch(self, event: TransferEvent) -> None:
        """Record a finished transfer. Raises ValueError if the recorder has recorded another one."""
        if self._seen:
            raise ValueError("a recorder can record one transfer only")
        sees_answers = self.observer.covers(UPLOADS)
        self._seen.append(
            TransferView(
                observer=self.observer,
                plan=event.plan,
                public_images=event.public_images,
                answers=self._chosen(event.answers) if sees_answers else None,
                released=_copy(event.released) if self.observer.covers(ANSWERS) else None,
                final_model=event.final_model.detach().clone(),
            )
        )

    @property
    def view(self) -> TransferView:
        """The observer's view of the transfer, once it has ended."""
        if not self._seen:
            raise ValueError("the recorder has recorded no transfer yet")
        return self._seen[0]

    def _chosen(self, answers: Tensor) -> Tensor:
        kept = answers if self.teachers is None else answers[:, list(self.teachers)]
        return kept.detach().clone()


def _copy(released: Released) -> Released:
    return replace(
        released,
        labels=released.labels.clone(),
        numbers={name: number.clone() for name, number in released.numbers.items()},
    )
