"""This broken LNMax takes 1 / b for the epsilon of a label, where it is 2 / b.

The real bug: the scale of a count, of which one teacher changes one vote, although a changed vote changes two counts.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.transfer.protection import TransferProtection
from ...accounting.votes import VOTE_L1
from ...transfer.label_votes import NoisyVotes
from ...transfer.lnmax import LNMax
from ...transfer.noisy_max import LaplaceMax
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class ScaleHalvedVotes(NoisyVotes):
    """A broken protection whose noise has half the scale."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        return LaplaceMax(self.noise.scale / VOTE_L1).noised(counts, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVotesScaleHalved(TransferControl, LNMax):
    """A deliberately broken defense (control) that states the claims of LNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = ScaleHalvedVotes
