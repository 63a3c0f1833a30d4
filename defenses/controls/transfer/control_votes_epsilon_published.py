"""This broken GNMax publishes the data-dependent epsilon of its votes without noise.

The real bug: the epsilon that an analysis of the votes prints is reported next to the labels. It is a function of the
private votes, and one vote more or less changes its digits.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....fl.transfer.protection import TransferProtection
from ...accounting.data_dependent import data_dependent_epsilon
from ...transfer.gnmax_data_dependent import GNMaxDataDependent, PublishedVotes, different
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class EpsilonPublishedVotes(PublishedVotes):
    """A broken protection that publishes a function of the votes as it is."""

    def number(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        rows, which = different(counts)
        each = [data_dependent_epsilon(one.numpy(), sigma=self.noise.scale, delta=self.delta) for one in rows]
        return torch.tensor(each, dtype=torch.float64)[which]


@dataclass(frozen=True, kw_only=True)
class ControlVotesEpsilonPublished(TransferControl, GNMaxDataDependent):
    """A deliberately broken defense (control) that states the claims of the sanitised version but violates them."""

    broken: ClassVar[type[TransferProtection]] = EpsilonPublishedVotes
