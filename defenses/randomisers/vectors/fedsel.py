"""Select one large coordinate privately and report its value by the Piecewise mechanism (FedSel: Liu et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from ....audit.arrays import FloatArray, IntArray
from ..numbers.piecewise import Piecewise
from ..randomiser import (
    NOT_GIVEN,
    Randomiser,
    WeightedReports,
    check_given_count,
    check_radius,
    labelled,
    rejection,
    vectors,
)

RULES = ("sampling", "ranking")


def ranks(values: ArrayLike) -> IntArray:
    """Return the rank 0..d-1 of each coordinate in ascending order, array of shape (..., d); of equal numbers the later
    one has the higher rank.
    """
    return np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable")


@dataclass(frozen=True, kw_only=True)
class FedSel(Randomiser):
    """A randomiser of a vector of shape (dimension,) with entries in [-radius, radius], whose report is (selected
    coordinate, randomised value).

    The coordinate is chosen with a ``share`` of epsilon: "sampling" gives one of the ``top`` largest magnitudes
    e^(share epsilon) times the probability of any other (perturbed sampling), "ranking" probabilities that grow with
    the rank up to that ratio (the exponential mechanism). Ranks are a permutation, so the normaliser is the same for
    all values and no factor 2 is needed. The number spends the rest. The claim is of the whole vector, and exact: both
    may be worst at once.

    **Biased**: the probability of a coordinate is private and cannot be divided out, so the mean is probability
    times coordinate; the paper's convergence argument takes the report for an unbiased gradient.

    Args:
        top: how many coordinates count as large, 1..dimension-1; used by "sampling" alone.
        share: of epsilon for the choice, in (0, 1).
        rule: "sampling" or "ranking".
    """

    dimension: int = 0
    radius: float = NOT_GIVEN
    top: int = 1
    share: float = 0.5
    rule: str = "sampling"
    source = "Liu, Cao, Yoshikawa, Chen 2020 (FedSel)"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("dimension", self.dimension, least=2)
        check_radius("radius", self.radius)
        check_given_count("top", self.top, least=1, most=self.dimension - 1)
        if not 0 < self.share < 1:
            raise ValueError(
                f"share must lie in (0, 1), got {self.share}: it is the fraction of epsilon spent on selecting the "
                "coordinate, and the rest is spent on its value"
            )
        if self.rule not in RULES:
            raise ValueError(f"rule, which selects a coordinate, must be one of {', '.join(RULES)}, got {self.rule!r}")

    @property
    def piecewise(self) -> Piecewise:
        """Return the Piecewise mechanism that randomises the value of the selected coordinate."""
        return Piecewise(epsilon=(1 - self.share) * self.epsilon, radius=self.radius)

    def _exponents(self, rows: FloatArray) -> FloatArray:
        # The choice depends on magnitudes alone; the sign is in the number.
        place = ranks(np.abs(rows))
        if self.rule == "sampling":
            liked = (place >= self.dimension - self.top).astype(np.float64)
        else:
            liked = place / (self.dimension - 1)
        return np.asarray(self.share * self.epsilon * (1 - liked))

    def chances(self, value: ArrayLike) -> FloatArray:
        """Return the probability with which each coordinate is selected, array of shape (dimension,)."""
        exponents = self._exponents(vectors(value, self.dimension, self.radius))
        return np.asarray(np.exp(log_softmax(-exponents, axis=-1)), dtype=np.float64)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        rows = vectors(values, self.dimension, self.radius)
        flat = rows.reshape(-1, self.dimension)
        exponents = self._exponents(flat)

        def propose(at: NDArray[np.intp]) -> tuple[IntArray, FloatArray]:
            choice = rng.integers(self.dimension, size=at.size)
            return choice, exponents[at, choice]

        chosen = rejection(len(flat), propose, rng)
        number = self.piecewise.sample(flat[np.arange(len(flat)), chosen], rng)
        return np.stack([chosen.astype(np.float64), number], axis=-1).reshape(*rows.shape[:-1], 2)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        rows, true = np.asarray(reports, dtype=np.float64), vectors(value, self.dimension, self.radius)
        at = rows[..., 0].astype(np.int64)
        return np.log(self.chances(true))[at] + self.piecewise.log_density(rows[..., 1], true[at])

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        numbers = np.unique(np.asarray(values, dtype=np.float64))
        return labelled(self.dimension, self.piecewise.outputs(*numbers, cuts=cuts))

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        # With all magnitudes equal the tie ranks the first coordinates lowest, which are the member's large ones.
        nonmember, member = np.full(self.dimension, -self.radius), np.zeros(self.dimension)
        member[: self.top if self.rule == "sampling" else 1] = self.radius
        return nonmember, member

    def estimate(self, reports: ArrayLike) -> FloatArray:
        rows = np.asarray(reports, dtype=np.float64)
        # Not divided by the probability of the choice, which is private.
        return np.asarray(rows[..., 1:] * (rows[..., :1] == np.arange(self.dimension)))
