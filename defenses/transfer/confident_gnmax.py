"""PATE that answers only queries on which many teachers agree (Confident-GNMax; Papernot et al. 2018, Algorithm 1)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_ndtr
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.curve import GaussianCurve, mu_from_epsilon
from ...fl.fields import check_count
from ...fl.protection import State
from ...fl.streams import normal
from ...fl.transfer.protection import ReleasedLabels, TransferContext, TransferProtection, counts_of
from ...fl.transfer.task import ABSTAINED, TransferPlan
from ..accounting.accountant import ANALYTIC_GAUSSIAN
from ..accounting.gaussian import gaussian_noise
from ..accounting.votes import VOTE_L2, label_noise
from ..defense import Share
from .defense import BudgetedTransfer, GaussianMax, PreparedTransfer


@dataclass(frozen=True, kw_only=True)
class ConfidentVotes(TransferProtection):
    """A protection that compares the largest vote count with a threshold, and releases a label only if the count
    passes.

    Args:
        threshold: number of votes.
        check_noise: standard deviation of the noise on the largest count, for the comparison.
        label_noise: standard deviation of the noise on each count, for the label.
        labels: largest number of labels that are released; later queries are checked and not answered.
    """

    threshold: float
    check_noise: float
    label_noise: float
    labels: int

    def largest(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the largest count of each query in the form in which it is compared with the threshold: ``(R,
        queries)``.
        """
        most = counts.amax(-1).double()
        return most + self.check_noise * normal(rng, tuple(most.shape), dtype=torch.float64)

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[ReleasedLabels, State]:
        counts = counts_of(answers)
        passed = self.largest(counts, rng) >= self.threshold
        labels = GaussianMax(self.label_noise).noised(counts, rng).argmax(-1)
        released = passed & (passed.cumsum(1) <= self.labels)
        return ReleasedLabels(labels=labels.masked_fill(~released, ABSTAINED)), state

    def label_law(self, plan: TransferPlan) -> "ConfidentLaw | None":
        """Return the exact distribution of a released label; None if earlier queries influence whether the label is
        released.
        """
        return None if self.labels < plan.queries else ConfidentLaw(votes=self)


@dataclass(frozen=True, kw_only=True)
class ConfidentLaw:
    """The distribution of a label that is released only if the largest count passes the threshold."""

    votes: ConfidentVotes

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        above = (np.max(counts, axis=-1, keepdims=True) - self.votes.threshold) / self.votes.check_noise
        labels = GaussianMax(self.votes.label_noise).log_probabilities(counts)
        return np.concatenate([log_ndtr(above) + labels, log_ndtr(-above)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(BudgetedTransfer):
    """A defense that releases a label only where the largest vote count, with noise, passes a threshold.

    Whether a query is answered is released as well, so that the checks are paid for: every query is checked (a changed
    vote moves the largest count by one), and at most ``labels`` are answered (the counts move by sqrt 2). The claim
    holds whatever the votes are. Which query is answered depends on noise, but the squares of shift over noise always
    sum to at most mu^2: filled up to it, the log-likelihood ratio is a Brownian motion at a fixed time, and the whole
    is mu-GDP (Smith and Thakurta 2022).

    Args:
        epsilon, delta: budget of all checks and labels together.
        threshold: votes that pass, as a share of the teachers.
        check_share: share of the budget's mu^2 that the checks spend.
        labels: largest number of labels; None: as many as there are queries.
    """

    threshold: Share = 0.6
    check_share: Share = 0.5
    labels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None:
            check_count("labels", self.labels, alternative=" or None")

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        most = plan.queries if self.labels is None else min(self.labels, plan.queries)
        checks = gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.queries)
        labels = label_noise(epsilon=self.epsilon, delta=self.delta, labels=most)
        protection = ConfidentVotes(
            threshold=self.threshold * plan.teachers,
            check_noise=checks / math.sqrt(self.check_share),
            label_noise=labels / math.sqrt(1 - self.check_share),
            labels=most,
        )
        claims = self.label_claims(
            mechanism="Gaussian noise on vote counts, largest count released if it passes a noisy threshold",
            parameters={
                "noise_std": protection.label_noise,
                "check_noise_std": protection.check_noise,
                "threshold": protection.threshold,
                "queries": plan.queries,
                "labels": most,
                "sensitivity": VOTE_L2,
            },
            accountant=ANALYTIC_GAUSSIAN,
            source="Papernot et al. 2018, Algorithm 1; composition: Smith and Thakurta 2022",
            curve=GaussianCurve(mu=mu_from_epsilon(self.epsilon, self.delta)),
        )
        return PreparedTransfer(protection=protection, claims=claims)
