"""This broken GNMax is calibrated to sensitivity 1 where a changed vote moves the counts by the root of 2.

The real bug: the sensitivity of one count, or of a teacher that is added, taken for that of a teacher that votes
otherwise: two counts change.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.transfer.protection import TransferProtection
from ...accounting.votes import VOTE_L2
from ...transfer.gnmax import GNMax
from ...transfer.label_votes import NoisyVotes
from ...transfer.noisy_max import GaussianMax
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class SensitivityVotes(NoisyVotes):
    """A broken protection whose noise is too small by the factor sqrt 2."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        return GaussianMax(self.noise.scale / VOTE_L2).noised(counts, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVotesSensitivity(TransferControl, GNMax):
    """A deliberately broken defense (control) that states the claims of GNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = SensitivityVotes
