"""The protection in which every teacher randomises its own votes, and the label with most answers is released."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray
from ...fl.protection import State
from ...fl.transfer.protection import TransferContext, TransferProtection
from ...fl.transfer.task import TransferPlan
from ..randomisers.categories.finite_domain import FiniteDomain


@dataclass(frozen=True, kw_only=True)
class RandomVotes(TransferProtection):
    """A protection whose answers are reports of a randomiser of categories: bits, or a category as a one-hot vector.

    The sum of the answers orders labels as the estimated counts do, because an estimate grows with each bit.
    """

    randomiser: FiniteDomain

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        reports = torch.from_numpy(self.randomiser.sample(logits.argmax(-1).numpy(), rng))
        answers = one_hot(reports, context.plan.classes) if reports.ndim == logits.ndim - 1 else reports
        return answers.to(torch.float32)

    def answer_law(self, plan: TransferPlan) -> "RandomVoteLaw":
        """Return the exact distribution of a teacher's answer."""
        return RandomVoteLaw(randomiser=self.randomiser)


@dataclass(frozen=True, kw_only=True)
class RandomVoteLaw:
    """The distribution of a randomised vote."""

    randomiser: FiniteDomain

    def log_likelihoods(self, answers: FloatArray) -> FloatArray:
        bits = np.asarray(answers).astype(np.int64)
        votes = self.randomiser.inputs()
        # A category is sent as a one-hot vector, and the randomiser's own report is its number.
        numbers = self.randomiser.sample(votes[0], np.random.default_rng(0)).ndim == 0
        reports = bits.argmax(-1) if numbers else bits
        return np.stack([self.randomiser.log_density(reports, vote) for vote in votes], axis=-1)
