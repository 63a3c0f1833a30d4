"""The protection in which a trusted aggregator adds noise to the vote counts and releases the label of the largest."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...audit.arrays import FloatArray
from ...fl.protection import State
from ...fl.transfer.protection import Released, TransferContext, TransferProtection, counts_of
from ...fl.transfer.task import TransferPlan
from .noisy_max import NoisyMax


@dataclass(frozen=True, kw_only=True)
class NoisyVotes(TransferProtection):
    """A protection that releases, for each query, the label with the largest noised count of votes.

    ``noise``: the law of the noise, drawn independently for each label of each query.
    """

    noise: NoisyMax

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the vote counts with noise: ``(R, queries, classes)``, in double precision."""
        return self.noise.noised(counts, rng)

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[Released, State]:
        return Released(labels=self.noised(counts_of(answers), rng).argmax(-1)), state

    def label_law(self, plan: TransferPlan) -> "MaxLaw":
        """Return the exact distribution of a released label."""
        return MaxLaw(noise=self.noise)


@dataclass(frozen=True, kw_only=True)
class MaxLaw:
    """The distribution of the label with the largest noised count; a label is always released."""

    noise: NoisyMax

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        labels = self.noise.log_probabilities(counts)
        return np.concatenate([labels, np.full((*labels.shape[:-1], 1), -np.inf)], axis=-1)
