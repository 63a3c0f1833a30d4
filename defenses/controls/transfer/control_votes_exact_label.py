"""This broken Confident-GNMax releases the exact majority of the votes where the noisy check passes.

The real bug: a query on which teachers agree seems to need no more noise, and only the check draws some.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.protection import State
from ....fl.transfer.protection import Released, TransferContext, TransferProtection, counts_of
from ....fl.transfer.transfer_task import ABSTAINED
from ...transfer.confident_gnmax import ConfidentGNMax, ConfidentVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class ExactLabelVotes(ConfidentVotes):
    """A broken protection whose released labels have no noise."""

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[Released, State]:
        released, state = super().aggregate_votes(answers, context, state, rng)
        exact = counts_of(answers).argmax(-1)
        return Released(labels=exact.masked_fill(released.labels == ABSTAINED, ABSTAINED)), state


@dataclass(frozen=True, kw_only=True)
class ControlVotesExactLabel(TransferControl, ConfidentGNMax):
    """A deliberately broken defense (control) that states the claims of Confident-GNMax but violates them."""

    broken: ClassVar[type[TransferProtection]] = ExactLabelVotes
