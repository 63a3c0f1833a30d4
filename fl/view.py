"""View: what one observer saw of a run. Attacks get a view, never the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ..audit.observer import Observer
from .message import Message
from .plan import Plan


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """One round, as far as the observer sees it; what is hidden from it is None.

    Args:
        round: number of the round, from 0.
        broadcast: (R, d), the model that clients received.
        reports: for UPLOADS what the clients sent, with senders; for SHUFFLED what arrived, a multiset: no senders, and
            the order tells nothing.
        aggregate: (R, d).
        shared: what the algorithm broadcast beside the model (SCAFFOLD's control, ``(R, d)``), by name.
        masked_words: for an observer that is told them, what each client sent to a secure sum, with senders, and what
            it learns of their masks; None where nobody masks.
    """

    round: int
    broadcast: Tensor | None = None
    reports: Message | None = None
    aggregate: Tensor | None = None
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    masked_words: Message | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """All that one observer saw, with the public plan.

    ``coordinates`` names the only coordinates that were kept, or is None when all were: an observer may look at less.
    """

    observer: Observer
    plan: Plan
    rounds: tuple[RoundView, ...]
    final_model: Tensor
    coordinates: slice | None = None
