"""This broken GNMax adds noise to the two largest vote counts only, and releases one of their labels.

The real bug: all other labels seem to have no chance, and are left out for speed. Which labels are left out depends on
the votes, and a label that one vote brings back shows it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.transfer.protection import TransferProtection
from ...transfer.gnmax import GNMax
from ...transfer.label_votes import NoisyVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class TopTwoVotes(NoisyVotes):
    """A broken protection that never releases a label whose count is below the second largest."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        second = counts.topk(2, dim=-1).values[..., 1:]
        return super().noised(counts, rng).masked_fill(counts < second, -math.inf)


@dataclass(frozen=True, kw_only=True)
class ControlVotesTopTwo(TransferControl, GNMax):
    """A deliberately broken defense (control) that states the claims of GNMax but violates them. With two labels it is
    correct.
    """

    broken: ClassVar[type[TransferProtection]] = TopTwoVotes
