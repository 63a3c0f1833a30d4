"""GNMax that also publishes, with noise, how much its labels revealed of these votes (Papernot et al. 2018, B)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import dp_accounting
import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from ...audit.arrays import FloatArray
from ...fl.protection import State
from ...fl.transfer.protection import ReleasedLabels, TransferContext, counts_of
from ...fl.transfer.task import TransferPlan
from ..accounting.accountant import RENYI, epsilon_at_best_order
from ..accounting.votes import VOTE_L2, GapBound, SmoothRelease, label_noise
from ..defense import Share
from .defense import BudgetedTransfer, GaussianMax, NoisyVotes, PreparedTransfer

NUMBER = "epsilon_of_these_votes"
"""Name of the published number: an epsilon that holds for the votes of this run, not a claim about all votes."""
_SMOOTHNESS = 0.2
"""Beta times the order: at 1/2 the noise would have an infinite divergence."""


@dataclass(frozen=True, kw_only=True)
class PublishedVotes(NoisyVotes):
    """A protection that releases noisy labels and, with noise, the data-dependent epsilon of their votes.

    Args:
        bound: the data-dependent Renyi divergence, at one order.
        release: how the divergence is published.
        most: the claimed epsilon, which the number never exceeds.
        delta: at which the number is an epsilon.
    """

    bound: GapBound
    release: SmoothRelease
    most: float
    delta: float

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[ReleasedLabels, State]:
        released, state = super().aggregate_votes(answers, context, state, rng)
        number = self.number(counts_of(answers), rng)
        return replace(released, numbers={NUMBER: number}), state

    def number(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the published epsilon of each run, ``(R,)``, from ``counts (R, queries, classes)``."""
        rows, which = different(counts)
        found = np.array([self._divergence(votes.numpy()) for votes in rows])[which.numpy()]
        published = self.release.sample(found[:, 0], found[:, 1], rng.standard_normal(len(counts)))
        return torch.from_numpy(self._epsilons(published))

    def _divergence(self, votes: np.ndarray) -> tuple[float, float]:
        return self.bound.total(votes), self.bound.smooth_sensitivity(votes, self.release.beta)

    def _epsilons(self, divergences: FloatArray) -> FloatArray:
        """The epsilons of labels and number together at published divergences; the claim holds in any case."""
        order = self.bound.order
        # At one order epsilon is the divergence plus a constant, which a divergence of 1e3 shows without rounding to 0.
        shift = float(dp_accounting.rdp.compute_epsilon([order], [1e3], self.delta)[0]) - 1e3
        total = np.maximum(divergences, 0.0) + self.release.rdp(order) + shift
        return np.asarray(np.clip(total, 0.0, self.most), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class GNMaxDataDependent(BudgetedTransfer):
    """A defense that releases noisy labels and an epsilon for the votes of this run, which is smaller where teachers
    agree.

    That epsilon depends on the votes and would reveal them, so it is published with noise in proportion to a smooth
    sensitivity, which costs a part of the budget. **The claim is the data-independent one**, about labels and number
    together. The published number is no claim: it holds for the votes of this run only, and is too small with
    probability ``shortfall``. With few teachers every vote matters, and it is the claim's own epsilon.

    Args:
        epsilon, delta: budget of all labels and of the number, composed as Renyi divergences.
        number_share: share of the budget, roughly, that the number spends.
        shortfall: probability that the published divergence is below the one of these votes.
    """

    number_share: Share = 0.1
    shortfall: Share = 1e-3

    @cached_property
    def _release(self) -> SmoothRelease:
        """How the number is published, at noise whose divergence at ``_order`` is the number's share of epsilon."""
        beta = _SMOOTHNESS / self._order

        def excess(log_noise: float) -> float:
            return self._of_noise(beta, log_noise).rdp(self._order) - self.number_share * self.epsilon

        if excess(20.0) >= 0:
            raise ValueError(f"epsilon is too small for publishing a data-dependent number, got {self.epsilon}")
        return self._of_noise(beta, float(brentq(excess, -10.0, 20.0)))

    def _of_noise(self, beta: float, log_noise: float) -> SmoothRelease:
        return SmoothRelease(beta=beta, noise=math.exp(log_noise), shortfall=self.shortfall)

    @property
    def _order(self) -> float:
        """The order at which a Gaussian of this budget is best converted, for a small epsilon at least 2."""
        return max(2.0, 1 + 2 * math.log(1 / self.delta) / self.epsilon)

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        sigma, release = self._noise(plan.queries), self._release
        bound = GapBound(teachers=plan.teachers, classes=plan.classes, sigma=sigma, order=self._order)
        protection = PublishedVotes(
            noise=GaussianMax(sigma), bound=bound, release=release, most=self.epsilon, delta=self.delta
        )
        claims = self.label_claims(
            mechanism="Gaussian noise on vote counts, largest count released, with the noised epsilon of the votes",
            parameters={
                "noise_std": sigma,
                "queries": plan.queries,
                "sensitivity": VOTE_L2,
                "order": bound.order,
                "smoothness": release.beta,
                "number_noise": release.noise,
            },
            accountant=RENYI,
            source="Papernot et al. 2018, Theorem 6 and appendix B with a bound in the gap of the votes",
        )
        return PreparedTransfer(protection=protection, claims=claims)

    def _noise(self, queries: int) -> float:
        """The smallest noise at which labels and number together satisfy the budget."""

        def excess(sigma: float) -> float:
            return epsilon_at_best_order(self._total(sigma, queries), self.delta) - self.epsilon

        least = label_noise(epsilon=self.epsilon, delta=self.delta, labels=queries)
        high = 2 * least
        while excess(high) > 0:
            high *= 2
            if high > 1e6 * least:
                raise ValueError(f"number_share {self.number_share} leaves no epsilon for the labels")
        return float(np.nextafter(brentq(excess, least, high, rtol=1e-6) * (1 + 2e-6), math.inf))

    def _total(self, sigma: float, queries: int) -> Callable[[float], float]:
        # A large number instead of infinity: the search over orders needs numbers.
        return lambda order: queries * order / sigma**2 + min(self._release.rdp(order), 1e9)


def different(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vote counts of all runs without duplicates, ``(k, queries, classes)``, and each run's index among
    them, ``(R,)``.
    """
    # Runs of one set of teachers share their memory, and need not be compared.
    if counts.stride(0) == 0:
        return counts[:1], torch.zeros(len(counts), dtype=torch.int64)
    rows, which = counts.unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
    return rows, which
