"""Attack that infers whether a client ever took part in training, the secret that client-level claims protect."""

from dataclasses import dataclass

import numpy as np

from ...audit.observer import UPLOADS
from ...fl.candidates import OwnerCandidates
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from .owner_attack import OwnerAttack


@dataclass(frozen=True, kw_only=True)
class ClientMembership(OwnerAttack):
    """An attack that infers which clients took part in training; the attack scores each client by the same number of
    samples.

    It needs a federation that holds some clients out (``held_out``).
    """

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        if view.observer.rank >= UPLOADS.rank or view.observer.sees_participation:
            raise Undefined(
                f"the adversary ({view.observer.phrase}) observes which clients take part, so there is nothing to infer"
            )
        return super().scores(view, knowledge, shown, rng)
