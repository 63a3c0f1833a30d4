"""Flip every bit of a Bloom filter at random, as RAPPOR's permanent step does (Erlingsson, Pihur, Korolova 2014)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import Bits, FlippedBits, Flips, PairLaw, categories, check_given_count

_PRIME = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Rappor(FlippedBits):
    """A randomiser of values 0..domain-1 whose reports have shape (bits,); the randomiser estimates the value's Bloom
    filter without bias.

    Two filters of ``hashes`` hash functions differ in at most 2 hashes bits, so each is flipped with probability 1 / (1
    + e^(epsilon / (2 hashes))): the paper's f / 2. Where no two values of the domain differ in that many, the exact
    epsilon is smaller. Hash functions map to 0..bits-1; the survey (section 2) has them map to [k], the number of
    functions. The instantaneous step is post-processing of this one and adds nothing to a single report's claim.

    Args:
        domain: number of values, >= 2.
        bits: length of the filter (the paper's m), >= 2.
        hashes: hash functions, 1..bits.
        cohort: seed of the public hash functions, >= 0.
    """

    bits: int = 8
    hashes: int = 2
    cohort: int = 0
    source = "Erlingsson, Pihur, Korolova 2014, Theorem 1"
    closed = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("bits", self.bits, least=2)
        check_given_count("hashes", self.hashes, least=1, most=self.bits)
        check_given_count("cohort", self.cohort, least=0)

    @property
    def flips(self) -> Flips:
        each = self.epsilon / (2 * self.hashes)
        return Flips(of_one=each, of_zero=each)

    def encoded(self, values: ArrayLike) -> Bits:
        """Return the Bloom filters of ``values``, shape (..., bits), before they are randomised; hash functions are
        public and depend on the client's group (the paper's cohort).
        """
        # Seeded by public fields alone: client and server must derive the same hash functions.
        rng = np.random.default_rng([self.cohort, self.hashes])
        slopes, shifts = rng.integers(1, _PRIME, size=(2, self.hashes))
        places = (categories(values, self.domain)[..., np.newaxis] * slopes + shifts) % _PRIME % self.bits
        hit = places[..., np.newaxis] == np.arange(self.bits)
        return np.asarray(hit.any(axis=-2), dtype=np.int8)

    def worst_pair(self) -> tuple[IntArray, IntArray]:
        filters = self.encoded(self.inputs())
        # Filters may share bits, so the worst pair has to be searched for.
        apart = (filters[:, np.newaxis] != filters).sum(axis=-1)
        nonmember, member = np.unravel_index(int(apart.argmax()), apart.shape)
        return np.array(int(nonmember)), np.array(int(member))

    def pair_law(self) -> PairLaw:
        """Return the distribution of a count of reported bits that equal those of the member's Bloom filter; the count
        includes only bits in which the member's and the nonmember's filters differ.
        """
        nonmember, member = (self.encoded(value) for value in self.worst_pair())
        apart = int((nonmember != member).sum())
        kept = np.arange(apart + 1)
        p, q = (binom.pmf(kept, apart, chance) for chance in (self.flips.one, self.flips.zero))
        return PairLaw(np.asarray((2 * kept - apart) * self.flips.of_one), p, q)

    def target(self, value: ArrayLike) -> FloatArray:
        return self.encoded(value).astype(np.float64)
