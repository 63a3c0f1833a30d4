"""What defenses of a transfer share: their base class, noisy maxima of votes, and votes that teachers randomise.

Release the label whose noised vote count is largest, and compute the exact probability of each label.

Define the base class of defenses of a transfer, which calibrate a protection to its plan and state claims.

The protection in which a trusted aggregator adds noise to the vote counts and releases the label of the largest.

The protection in which every teacher randomises its own votes, and the label with most answers is released.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import ANSWERS
from ...fl.protection import State
from ...fl.transfer.protection import ReleasedLabels, TransferContext, TransferProtection, counts_of
from ...fl.transfer.task import TransferPlan
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION
from ..defense import DefensePart, DeltaOrZero, Epsilon, check_delta, report_claim
from ..randomisers.randomiser import FiniteDomain

_POINTS = 4001
_REACH = 12.0
_AT_ONCE = 20
"""Grid of a quadrature: number of points, and deviations (or scales) beyond the smallest and the largest count;
counts per pass."""


@dataclass(frozen=True)
class NoisyMax(ABC):
    """The law of the label with the largest count after independent noise of one distribution, with the given
    ``scale``, on each count.
    """

    scale: float

    @abstractmethod
    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw noise of scale 1."""

    @abstractmethod
    def log_density(self, noise: FloatArray) -> FloatArray:
        """Return the log density of noise of scale 1."""

    @abstractmethod
    def log_below(self, noise: FloatArray) -> FloatArray:
        """Return the log probability that noise of scale 1 is below a number."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the counts with noise, in double precision, because single precision keeps only four decimals of a
        count of 1000.
        """
        return counts.double() + self.scale * torch.from_numpy(self.draw(tuple(counts.shape), rng))

    def log_probabilities(self, counts: ArrayLike) -> FloatArray:
        """Return the log probability of each label: ``counts (..., classes)`` give ``(..., classes)``.

        Label y wins if its noised count is x and all others are below: the integral over x, by the trapezoidal rule.
        """
        votes = np.asarray(counts, dtype=np.float64)
        # Queries often have equal counts, and the grids of all at once would need gigabytes.
        kinds, which = np.unique(votes.reshape(-1, votes.shape[-1]), axis=0, return_inverse=True)
        parts = np.array_split(kinds, math.ceil(len(kinds) / _AT_ONCE))
        found = np.concatenate([self._integrated(part / self.scale) for part in parts])
        return np.asarray(found[which].reshape(votes.shape))

    def _integrated(self, votes: FloatArray) -> FloatArray:
        """Log probabilities for counts in units of the scale, ``(n, classes)``."""
        low, high = votes.min(-1, keepdims=True) - _REACH, votes.max(-1, keepdims=True) + _REACH
        grid = (low + (high - low) * np.linspace(0, 1, _POINTS))[:, np.newaxis, :]
        noise = grid - votes[..., np.newaxis]
        below = self.log_below(noise)
        # All others below x: the product over all labels without the label's own factor.
        inside = self.log_density(noise) + below.sum(-2, keepdims=True) - below
        found = logsumexp(inside, axis=-1)
        # The spacing of the grid and the rule's error are alike for all labels, whose probabilities sum to 1.
        return np.asarray(found - logsumexp(found, axis=-1, keepdims=True))


class GaussianMax(NoisyMax):
    """The noisy maximum with Gaussian noise; ``scale`` is its standard deviation (GNMax: Papernot et al. 2018)."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal(shape)

    def log_density(self, noise: FloatArray) -> FloatArray:
        return np.asarray(-(noise**2) / 2 - math.log(2 * math.pi) / 2)

    def log_below(self, noise: FloatArray) -> FloatArray:
        return np.asarray(log_ndtr(noise))


class LaplaceMax(NoisyMax):
    """The noisy maximum with Laplace noise; ``scale`` is its b (LNMax: Papernot et al. 2017)."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.laplace(size=shape)

    def log_density(self, noise: FloatArray) -> FloatArray:
        return np.asarray(-np.abs(noise) - math.log(2))

    def log_below(self, noise: FloatArray) -> FloatArray:
        # Above 0 it is log(1 - exp(-x) / 2), below 0 log(exp(x) / 2).
        return np.asarray(np.where(noise < 0, noise - math.log(2), np.log1p(-np.exp(-np.abs(noise)) / 2)))


TRUSTED = "the aggregator, which sees every teacher's answers"
_UNITS = {
    Unit.CLIENT: (Adjacency.REPLACE_ONE, "the data of one client are replaced, and all other teachers keep their data"),
    Unit.SAMPLE: (Adjacency.ADD_REMOVE, "each sample belongs to one teacher, and adding it moves no other sample"),
}


@dataclass(frozen=True, kw_only=True)
class PreparedTransfer:
    """A calibrated protection of a transfer together with the claims that its defense states; a defense may state
    none.
    """

    protection: TransferProtection
    claims: tuple[Claim, ...]

    @property
    def spending(self) -> dict[str, Callable[[int], float]]:
        """The epsilon after the first rounds, keyed by ``claim_id``; empty, because all queries are answered in one
        round.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class TransferDefense(DefensePart, ABC):
    """The base class of defenses of a transfer by answers."""

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        """Calibrate the protection to the public plan of a transfer, and state its privacy claims.

        Raises:
            ValueError: if the plan violates an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} must define the method prepare(plan)")


@dataclass(frozen=True, kw_only=True)
class BudgetedTransfer(TransferDefense, ABC):
    """A base class of defenses with one budget for the answers to all queries together.

    Args:
        epsilon, delta: the budget; at delta 0 pure, where the mechanism allows it (``pure``).
    """

    epsilon: Epsilon = 8.0
    delta: DeltaOrZero = 1e-5
    pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pure:
            check_delta(self.delta)

    def label_claims(self, **words: Any) -> tuple[Claim, ...]:
        """Return the claims that all released labels together satisfy the budget, against the student.

        One is about a whole client, one about one sample: either changes the votes of one teacher, in any way.
        ``words``: mechanism, parameters, accountant, source and curve of the claims.
        """
        words |= {"epsilon": self.epsilon, "delta": self.delta, "rounds": 1, "dp_model": "central", "trust": TRUSTED}
        return tuple(
            Claim(unit=unit, adjacency=adjacency, observer=ANSWERS, sampling=sampling, **words)
            for unit, (adjacency, sampling) in _UNITS.items()
        )

    def answer_claim(self, **words: Any) -> Claim:
        """Return the local DP claim that all answers of one teacher together satisfy the budget, for any two teachers.

        The adversary is the server, which observes every teacher's answers. ``words``: mechanism, parameters, source
        and curve of the claim, and the accountant unless it is the composition of pure epsilons.
        """
        stated = {"accountant": EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION, **words}
        return report_claim(epsilon=self.epsilon, delta=self.delta, rounds=1, **stated)


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
    ) -> tuple[ReleasedLabels, State]:
        return ReleasedLabels(labels=self.noised(counts_of(answers), rng).argmax(-1)), state

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


@dataclass(frozen=True, kw_only=True)
class RandomVotes(TransferProtection):
    """A protection in which each answer is a randomised category: either bits, or a category as a one-hot vector.

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
