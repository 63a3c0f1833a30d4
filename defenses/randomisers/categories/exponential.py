"""Choose a candidate at random, more often the higher its utility (exponential mechanism: McSherry and Talwar 2007)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import (
    NOT_GIVEN,
    Randomiser,
    WeightedReports,
    check_given_count,
    check_radius,
    finite,
    rejection,
    vectors,
)


@dataclass(frozen=True, kw_only=True)
class Exponential(Randomiser):
    """A randomiser that chooses one candidate with probability proportional to exp(epsilon * utility / (2 *
    sensitivity)).

    A value is the utilities of its candidates (candidates,), each in [0, sensitivity]; the report is the number of one
    candidate. Drawn in integers.

    The 2 pays for a normaliser that changes with the value, and pays too much: the exact epsilon, of one candidate
    alone at the top against one alone at the bottom, is eps/2 + ln((1 + (k-1) e^(eps/2)) / (e^(eps/2) + k - 1)), .897
    for 10 candidates at epsilon 1. A choice has no unbiased estimator: ``estimate`` is the choice as a one-hot vector
    and ``expectation`` its law.

    Args:
        candidates: number of candidates, >= 2.
        sensitivity: largest change of one candidate's utility between two values.
    """

    candidates: int = 0
    sensitivity: float = NOT_GIVEN
    source = "McSherry and Talwar 2007, Theorem 6"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("candidates", self.candidates, least=2)
        check_radius("sensitivity", self.sensitivity)

    def _exponents(self, values: ArrayLike) -> FloatArray:
        utilities = vectors(values, self.candidates, self.sensitivity)
        if np.any(utilities < 0):
            raise ValueError(f"each utility must lie in [0, {self.sensitivity}], got {utilities.min()}")
        # As an exponent >= 0, the form in which rejection draws without computing an exponential.
        return np.asarray(self.epsilon / 2 * (1 - utilities / self.sensitivity))

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> IntArray:
        exponents = self._exponents(values)
        flat = exponents.reshape(-1, self.candidates)

        def propose(rows: NDArray[np.intp]) -> tuple[IntArray, FloatArray]:
            choice = rng.integers(self.candidates, size=rows.size)
            return choice, flat[rows, choice]

        return rejection(len(flat), propose, rng).reshape(exponents.shape[:-1])

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        return np.asarray(log_softmax(-self._exponents(value))[np.asarray(reports)])

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return finite(np.arange(self.candidates))

    def inputs(self) -> FloatArray:
        # Corners of the utilities attain the supremum: one candidate alone at the top, or alone at the bottom.
        alone = self.sensitivity * np.eye(self.candidates)
        return np.concatenate([alone, self.sensitivity - alone])

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        alone = self.inputs()
        return alone[self.candidates], alone[0]

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray(np.asarray(reports)[..., np.newaxis] == np.arange(self.candidates), dtype=np.float64)

    def expectation(self, value: ArrayLike) -> FloatArray:
        return np.asarray(np.exp(log_softmax(-self._exponents(value), axis=-1)), dtype=np.float64)
