"""This broken randomised response spends the whole epsilon on the answer to every query.

The real bug: the epsilon of one answer is printed as that of the training, and the answers are not composed.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.protection import State
from ....fl.transfer.protection import TransferContext, TransferProtection
from ...transfer.grr_votes import GRRVotes
from ...transfer.random_votes import RandomVotes
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class BudgetEachVotes(RandomVotes):
    """A broken protection that multiplies an answer's epsilon by the number of queries."""

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        whole = replace(self.randomiser, epsilon=self.randomiser.epsilon * context.plan.queries)
        return RandomVotes(randomiser=whole).teacher_answers(logits, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVotesBudgetEach(TransferControl, GRRVotes):
    """A deliberately broken defense (control) that states the claim of randomised votes but violates it."""

    broken: ClassVar[type[TransferProtection]] = BudgetEachVotes
