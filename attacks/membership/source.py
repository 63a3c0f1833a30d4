"""Attack that infers which client holds a sample: the client whose own model fits it best (Hu et al. 2021)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...audit.observer import UPLOADS
from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from .candidates import align, client_model_losses, rounds_of
from .source_attack import SourceAttack


@dataclass(frozen=True, kw_only=True)
class SourceInferenceAttack(SourceAttack):
    """An attack that infers which client a sample belongs to, by the sample's loss under each client's model or by the
    cosine of its gradient with each client's upload.

    The score is the mean, over the rounds in which a client took part, of minus the loss, or of the cosine.

    It needs an observer that sees senders: a sum or a multiset has no client to identify.

    Args:
        by: ``"loss"`` or ``"cosine"``.
    """

    by: Literal["loss", "cosine"] = "loss"

    def scores(self, view: View, knowledge: Knowledge, shown: Candidates, rng: np.random.Generator) -> np.ndarray:
        if view.observer.rank < UPLOADS.rank:
            raise Undefined(f"{view.observer.phrase} cannot identify clients, so no source can be inferred")
        sums, rounds = np.zeros((view.plan.clients, len(shown.labels))), np.zeros(view.plan.clients)
        for rows in rounds_of(view):
            by_loss = self.by == "loss"
            table = (
                -client_model_losses(rows, view, knowledge, shown) if by_loss else align(rows, knowledge, shown).cosines
            )
            # Relative to the round's mean: a client must not gain by missing early rounds, whose losses are high.
            sums[list(rows.senders)] += (table - table.mean(0)).numpy()
            rounds[list(rows.senders)] += 1
        if not rounds.all():
            raise Undefined(
                f"clients {np.flatnonzero(rounds == 0).tolist()} took part in no round, so they cannot be compared"
            )
        return np.asarray((sums / rounds[:, None]).T, dtype=np.float64)
