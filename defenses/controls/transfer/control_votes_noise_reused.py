"""This broken GNMax adds the same noise to the votes on every query.

The real bug: a generator that is seeded inside the function of a query. A label of known votes then shows between which
numbers the noise lies, and the label of the next query shows a vote exactly.
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
class NoiseReusedVotes(NoisyVotes):
    """A broken protection that draws the noise of one query and adds it to all."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        noise = super().noised(counts[:, :1] * 0, rng)
        return counts + noise


@dataclass(frozen=True, kw_only=True)
class ControlVotesNoiseReused(TransferControl, GNMax):
    """A deliberately broken defense (control) that states the claims of GNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = NoiseReusedVotes
