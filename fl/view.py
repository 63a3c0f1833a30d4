"""A view is what one observer saw of a run; an attack receives a view, never the run itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ..audit.observer import Observer
from .message import Message
from .plan import Plan


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """What one observer sees of one round; what is hidden from the observer is None.

    Args:
        round: number of the round, from 0.
        broadcast: (R, d), the model that clients received.
        reports: for UPLOADS what the clients sent, with senders; for SHUFFLED what arrived: a multiset without senders
            whose order carries no information.
        aggregate: (R, d).
        shared: what the algorithm broadcasts with the model (SCAFFOLD's control, ``(R, d)``), by name.
        masked_words: for an observer that sees the inputs of a secure sum: what each client sent, with senders, and
            what the observer learns about the masks; None where no client masks.
    """

    round: int
    broadcast: Tensor | None = None
    reports: Message | None = None
    aggregate: Tensor | None = None
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    masked_words: Message | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """All that one observer saw of a run, together with the public plan.

    ``coordinates`` names the coordinates that were recorded, or is None when all were.
    """

    observer: Observer
    plan: Plan
    rounds: tuple[RoundView, ...]
    final_model: Tensor
    coordinates: slice | None = None
