"""This broken randomised response spends an answer's epsilon on every bit of the one-hot vote.

The real bug: randomised response is epsilon-DP for a bit, and two one-hot votes differ in two bits.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.protection import State
from ....fl.transfer.protection import TransferContext, TransferProtection
from ...transfer.random_votes import RandomVotes
from ...transfer.unary_votes import UnaryVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class BitsEachVotes(RandomVotes):
    """A broken protection whose answers have twice the epsilon: that of each bit is the answer's."""

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        twice = replace(self.randomiser, epsilon=2 * self.randomiser.epsilon)
        return RandomVotes(randomiser=twice).teacher_answers(logits, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVotesBitsEach(TransferControl, UnaryVotes):
    """A deliberately broken defense (control) that states the claim of randomised bits but violates it."""

    broken: ClassVar[type[TransferProtection]] = BitsEachVotes
