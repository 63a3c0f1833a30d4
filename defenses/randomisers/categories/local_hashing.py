"""Send a randomised response of a value's hash (optimised local hashing: Wang, Blocki, Li, Jha 2017)."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import FiniteDomain, PairLaw, WeightedReports, categories, check_listable, finite
from .grr import GRR


class LocalHashing(FiniteDomain):
    """A randomiser of values 0..domain-1 whose report is (slope, shift, cell): slope and shift define the client's
    public hash function, and cell is the randomised hash value.

    h(v) = ((slope v + shift) mod prime) mod cells, slope in 1..prime-1, shift in 0..prime-1, prime the smallest one
    that is >= domain: the collision probability of two values is known exactly, and the estimator divides by it. A
    report is useless without its seed; the claim holds for every seed. The target is the one-hot encoding.

    Args:
        domain: number of values, >= 3.
    """

    source = "Wang, Blocki, Li, Jha 2017, OLH; hash family: Carter and Wegman 1979"
    closed = True
    smallest_domain = 3

    @property
    def cells(self) -> int:
        """Return the number of hash values (the paper's g): e^epsilon + 1, rounded, but at most the number of
        values.
        """
        # The cap on epsilon prevents an overflow; more cells than values are useless anyway.
        return min(self.domain, round(math.exp(min(self.epsilon, 30.0))) + 1)

    @cached_property
    def prime(self) -> int:
        """Return the prime modulus of the hash functions."""
        candidate = self.domain
        while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
            candidate += 1
        return candidate

    @property
    def collision(self) -> float:
        """Return the probability that two different values get the same hash value under a random hash function."""
        sizes = [len(range(cell, self.prime, self.cells)) for cell in range(self.cells)]
        return sum(size * (size - 1) for size in sizes) / (self.prime * (self.prime - 1))

    @property
    def response(self) -> GRR:
        """Return the randomised response mechanism that perturbs the hash value."""
        return GRR(epsilon=self.epsilon, domain=self.cells)

    @property
    def support(self) -> float:
        """Return the probability that a reported hash value equals the hash of a given value that is not the client's
        value.
        """
        return self.response.lie + self.collision * (self.response.truth - self.response.lie)

    def cell(self, reports: ArrayLike, values: ArrayLike) -> IntArray:
        """Return the hash of each value under the hash function in the corresponding report; reports (..., 3) and
        values (...,) are broadcast.
        """
        rows = np.asarray(reports)
        return np.asarray((rows[..., 0] * np.asarray(values) + rows[..., 1]) % self.prime % self.cells)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> IntArray:
        true = categories(values, self.domain)
        reports = np.empty((*true.shape, 3), dtype=np.int64)
        reports[..., 0] = rng.integers(1, self.prime, size=true.shape)
        reports[..., 1] = rng.integers(self.prime, size=true.shape)
        reports[..., 2] = self.response.sample(self.cell(reports, true), rng)
        return reports

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        rows, response = np.asarray(reports), self.response
        hit = rows[..., 2] == self.cell(rows, categories(value, self.domain))
        mass = np.where(hit, math.log(response.truth), math.log(response.lie))
        # The hash function is drawn uniformly whatever the value, so it only shifts the log density.
        return np.asarray(mass - math.log(self.prime * (self.prime - 1)))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        check_listable(self.prime * (self.prime - 1) * self.cells)
        axes = np.arange(1, self.prime), np.arange(self.prime), np.arange(self.cells)
        return finite(np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1))

    def pair_law(self) -> PairLaw:
        """Return three probabilities for each of the two values that reports distinguish best (the member's and the
        nonmember's): that the reported hash value fits only the member's value, only the nonmember's, or both or
        neither.
        """
        # Where both values share a cell the report is equally likely under both.
        apart = 1 - self.collision
        only, other = apart * self.response.truth, apart * self.response.lie
        p, q = np.array([only, other, 1 - only - other]), np.array([other, only, 1 - only - other])
        return PairLaw(np.array([math.log(only / other), math.log(other / only), 0.0]), p, q)

    def estimate(self, reports: ArrayLike) -> FloatArray:
        rows = np.asarray(reports)[..., np.newaxis, :]
        supported = rows[..., 2] == self.cell(rows, np.arange(self.domain))
        return np.asarray((supported - self.support) / (self.response.truth - self.support))
