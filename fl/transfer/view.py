"""A view is what one observer saw of a transfer; an attack receives a view, never the run itself."""

from dataclasses import dataclass, replace

from torch import Tensor

from ...audit.observer import Observer
from .plan import TransferPlan
from .protection import Released


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
    released: Released | None
    final_model: Tensor

    def of_run(self, number: int) -> "TransferView":
        """Return the view of one of the R runs alone, with a first dimension of 1."""
        one, released = slice(number, number + 1), self.released
        if released is not None:
            numbers = {name: value[one] for name, value in released.numbers.items()}
            released = Released(labels=released.labels[one], numbers=numbers)
        answers = None if self.answers is None else self.answers[one]
        return replace(self, answers=answers, released=released, final_model=self.final_model[one])
