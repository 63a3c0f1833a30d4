"""Report a random set of values that contains the true one more often than others (Ye and Barg 2018)."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....audit.arrays import FloatArray
from ..randomiser import (
    Bits,
    FiniteDomain,
    PairLaw,
    WeightedReports,
    categories,
    check_listable,
    finite,
    rejection,
)


class SubsetSelection(FiniteDomain):
    """A randomiser of values 0..domain-1 whose report is a set of ``size`` values, given as bits of shape (domain,). A
    set with the true value is e^epsilon times as likely as one without it.

    The target is the one-hot encoding. Drawn in integers. ``size`` is domain / (1 + e^epsilon), rounded, at least 1,
    which is nearly the best for the mean squared error.
    """

    source = "Ye and Barg 2018, subset selection"
    closed = True

    @property
    def size(self) -> int:
        """Return the number of values in a reported set."""
        return max(1, round(self.domain / (1 + math.exp(self.epsilon))))

    @property
    def truth(self) -> float:
        """Return the probability that the reported set contains the true value."""
        return 1 / (1 + (self.domain - self.size) / self.size * math.exp(-self.epsilon))

    @property
    def lie(self) -> float:
        """Return the probability that the reported set contains one particular value other than the true one."""
        return (self.size - self.truth) / (self.domain - 1)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> Bits:
        true = categories(values, self.domain)
        flat = true.ravel()
        start = (np.arange(self.domain) < self.size).astype(np.int8)

        def propose(rows: NDArray[np.intp]) -> tuple[Bits, FloatArray]:
            # A uniform set of the right size; the exponent then favours those with the true value.
            sets = rng.permuted(np.tile(start, (rows.size, 1)), axis=1)
            return sets, np.where(sets[np.arange(rows.size), flat[rows]] == 1, 0.0, self.epsilon)

        return rejection(flat.size, propose, rng).reshape(*true.shape, self.domain)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        sets = np.asarray(reports)
        held = sets[..., int(categories(value, self.domain))] == 1
        without = math.comb(self.domain - 1, self.size)
        total = math.comb(self.domain - 1, self.size - 1) + without * math.exp(-self.epsilon)
        mass = np.where(held, 0.0, -self.epsilon) - math.log(total)
        # A report with another number of values is impossible.
        return np.where(sets.sum(axis=-1) == self.size, mass, -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        check_listable(math.comb(self.domain, self.size))
        sets = np.array(list(itertools.combinations(range(self.domain), self.size)))
        return finite((sets[..., np.newaxis] == np.arange(self.domain)).any(axis=1).astype(np.int8))

    def pair_law(self) -> PairLaw:
        """Return three probabilities for each of the two values that reports distinguish best (the member's and the
        nonmember's): that the reported set contains only the member's value, only the nonmember's, or both or neither.
        """
        both = self.truth * (self.size - 1) / (self.domain - 1)
        only, other = self.truth - both, (1 - self.truth) * self.size / (self.domain - 1)
        p, q = np.array([only, other, 1 - only - other]), np.array([other, only, 1 - only - other])
        return PairLaw(np.array([math.log(only / other), math.log(other / only), 0.0]), p, q)

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray((np.asarray(reports) - self.lie) / (self.truth - self.lie))
