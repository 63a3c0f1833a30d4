"""This broken GNMax adds noise to the votes on the first query only.

The real bug: the noise is drawn before the loop over queries and added inside a branch for the first one, or an array
of noise with one row is broadcast and zeroed. All later labels are exact majorities.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.transfer.protection import TransferProtection
from ...transfer.gnmax import GNMax
from ...transfer.label_votes import NoisyVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class NoiseOnceVotes(NoisyVotes):
    """A broken protection that leaves the counts of all queries but the first without noise."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        noised = counts.double().clone()
        noised[:, :1] = super().noised(counts[:, :1], rng)
        return noised


@dataclass(frozen=True, kw_only=True)
class ControlVotesNoiseOnce(TransferControl, GNMax):
    """A deliberately broken defense (control) that states the claims of GNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = NoiseOnceVotes
