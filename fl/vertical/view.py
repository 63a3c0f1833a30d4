"""A vertical view is what one party, or the public, saw of a vertical federation; a recorder keeps it during a run."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from .engine import StepEvent
from .network import Layers, VerticalModels
from .protection import VerticalPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class StepView:
    """What one party sees of one step; what it does not see is None.

    Args:
        people: (b,), the people of the batch.
        gradients: (R, b, embedding), what a passive party was sent.
        bottom: a passive party's own model before the step.
        embeddings: by passive party, what the active party was sent, (R, b, embedding); empty in steps in which it uses
            what it has.
        returned: by passive party, the gradients that the active party sent, (R, b, embedding).
        targets: (R, b, classes), what the active party trained on.
        top: the active party's model before the step.
    """

    step: int
    epoch: int
    people: Tensor
    gradients: Tensor | None = None
    bottom: Layers | None = None
    embeddings: tuple[Tensor, ...] = ()
    returned: tuple[Tensor, ...] = ()
    targets: Tensor | None = None
    top: Layers | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalView:
    """All that one party saw of a run, together with the public plan.

    Args:
        party: number of the passive party that looks on; None for another observer.
        columns: (n, width), the observer's own columns of all people; None for the public.
        labels: (n,), of all people, for the active party; None for others.
        own: the final bottom model of the party that looks on; None for the public.
        final: the final models of all parties for the public; None for a party.
    """

    observer: Observer
    plan: VerticalPlan
    steps: tuple[StepView, ...]
    party: int | None = None
    columns: Tensor | None = None
    labels: Tensor | None = None
    own: Layers | None = None
    final: VerticalModels | None = None


@dataclass(kw_only=True)
class VerticalRecorder:
    """A recorder that keeps what one observer sees of each step.

    Args:
        observer: PASSIVE_PARTY, ACTIVE_PARTY or FINAL_MODEL (all final models).
        party: which passive party observes.

    Raises:
        ValueError: for an observer that no vertical federation has.
    """

    observer: Observer
    party: int = 0
    _steps: list[StepView] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.observer not in (PASSIVE_PARTY, ACTIVE_PARTY, FINAL_MODEL):
            raise ValueError(
                f"an observer of a vertical federation must be passive_party, active_party or final_model, got "
                f"{self.observer}"
            )

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        seen = StepView(step=event.step, epoch=event.epoch, people=event.people)
        if self.observer == PASSIVE_PARTY:
            own = event.models.bottoms[self.party]
            self._steps.append(replace(seen, gradients=event.gradients[self.party], bottom=own))
        elif self.observer == ACTIVE_PARTY:
            sent = event.embeddings if event.sent else ()
            back, top = event.gradients, event.models.top
            self._steps.append(replace(seen, embeddings=sent, returned=back, targets=event.targets, top=top))

    def view(
        self, plan: VerticalPlan, final: VerticalModels, *, columns: tuple[Tensor, ...], labels: Tensor
    ) -> VerticalView:
        """Return the observer's view of the whole run, once it has ended.

        ``columns``, ``labels``: of all people; the view holds those that belong to the observer.
        """
        passive, active = self.observer == PASSIVE_PARTY, self.observer == ACTIVE_PARTY
        party = self.party if passive else -1
        return VerticalView(
            observer=self.observer,
            plan=plan,
            steps=tuple(self._steps),
            party=self.party if passive else None,
            columns=columns[party] if passive or active else None,
            labels=labels if active else None,
            own=final.bottoms[party] if passive or active else None,
            final=final if self.observer == FINAL_MODEL else None,
        )
