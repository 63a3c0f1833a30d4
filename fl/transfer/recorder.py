"""Recorders keep what one observer may see of a transfer as a view; attacks receive a view, never the run itself."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from ...audit.observer import ANSWERS, FINAL_MODEL, UPLOADS, Observer
from .protection import ReleasedLabels
from .task import TransferPlan


@dataclass(frozen=True, kw_only=True)
class TransferView:
    """All that one observer saw of a transfer, together with the public plan; what is hidden from it is None.

    Args:
        public_images: (queries, c, h, w), which everybody knows.
        answers: (R, teachers, queries, m), what each teacher sent: for UPLOADS.
        released: what the student was given: for UPLOADS and ANSWERS.
        final_model: (R, d), the student, which is published.
    """

    observer: Observer
    plan: TransferPlan
    public_images: Tensor
    answers: Tensor | None
    released: ReleasedLabels | None
    final_model: Tensor

    def of_run(self, number: int) -> "TransferView":
        """Return the view of one of the R runs alone, with a first dimension of 1."""
        one, released = slice(number, number + 1), self.released
        if released is not None:
            numbers = {name: value[one] for name, value in released.numbers.items()}
            released = ReleasedLabels(labels=released.labels[one], numbers=numbers)
        answers = None if self.answers is None else self.answers[one]
        return replace(self, answers=answers, released=released, final_model=self.final_model[one])


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
    released: ReleasedLabels
    final_model: Tensor


@dataclass(kw_only=True)
class AnswerRecorder:
    """A recorder that keeps what one observer sees of a transfer; ``teachers`` restricts the answers to the answers of
    some teachers.
    """

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


def _copy(released: ReleasedLabels) -> ReleasedLabels:
    return replace(
        released,
        labels=released.labels.clone(),
        numbers={name: number.clone() for name, number in released.numbers.items()},
    )
