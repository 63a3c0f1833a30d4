"""This broken Confident-GNMax does not pay for its checks, which get noise of one vote.

The real bug: only released labels are accounted, because a query that is not answered seems to reveal nothing. Which
queries are answered is seen, and with little noise it shows on which side of the threshold the largest count lies.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....fl.streams import normal
from ....fl.transfer.protection import TransferProtection
from ...transfer.confident_gnmax import ConfidentGNMax, ConfidentVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class CheckUnpaidVotes(ConfidentVotes):
    """A broken protection whose checks have noise of standard deviation 1, whatever the budget is."""

    def largest(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        most = counts.amax(-1).double()
        return most + normal(rng, tuple(most.shape), dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class ControlVotesCheckUnpaid(TransferControl, ConfidentGNMax):
    """A deliberately broken defense (control) that states the claims of Confident-GNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = CheckUnpaidVotes
