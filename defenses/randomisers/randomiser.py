"""Define the base class of local DP mechanisms, with exact density, exact epsilon and privacy claim, and exact coins.

Draw Bernoulli variables by integer arithmetic, so that their probabilities have no floating-point error.

``exp(-gamma)`` after Canonne, Kamath, Steinke 2020, Algorithm 1, for many coins at once.

Sum or integrate a function over all possible reports of a randomiser.

Define the base class of local DP mechanisms, with exact density, exact epsilon and privacy claim.

Flip each bit of an encoded value independently, with one probability for ones and another for zeros.

Define the base class of randomisers of one value out of 0..domain-1.

Define the base class of randomisers of one number in [-radius, radius].
"""

import dataclasses
import itertools
import math
from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.claim import Claim
from ...audit.curve import Curve
from ...audit.estimators.pairwise_event import best_event
from ..defense import report_claim

Propose = Callable[[NDArray[np.intp]], tuple[NDArray[Any], ArrayLike]]
"""Row numbers (m,) -> one proposal for each, and the exponents with which ``exp_coin`` accepts them."""
_FINEST = 2.0**53


def coin(share: ArrayLike, size: int, rng: np.random.Generator) -> BoolArray:
    """Draw ``size`` booleans that are true with probability ``share`` in [0, 1], rounded down to a multiple of 2^-53;
    ``share`` is one number, or one per boolean.
    """
    # The generator's numbers are j / 2^53 with j uniform, so this compares integers.
    return np.asarray(rng.random(size) < np.floor(np.asarray(share, dtype=np.float64) * _FINEST) / _FINEST)


def exp_coin(exponent: ArrayLike, size: int, rng: np.random.Generator) -> BoolArray:
    """Draw ``size`` booleans that are true with probability exp(-``exponent``), without computing an exponential;
    ``exponent`` >= 0 is one number, or one per boolean.

    The exponent's fraction is rounded down to k / 2^53, so that a false report is never rarer than claimed.
    """
    gamma = np.broadcast_to(np.asarray(exponent, dtype=np.float64), (size,))
    whole = np.floor(gamma)
    heads = _small_exp_coin(gamma - whole, rng)
    left = whole.astype(np.int64)
    # exp(-3.5) = exp(-.5) exp(-1)^3: one more coin for every whole unit, until the first tail.
    # Only coins that are still heads and have whole units left are flipped again.
    flipped = np.flatnonzero(heads & (left > 0))
    while flipped.size:
        heads[flipped] = _small_exp_coin(np.ones(flipped.size), rng)
        left[flipped] -= 1
        flipped = flipped[heads[flipped] & (left[flipped] > 0)]
    return heads


def rejection(count: int, propose: Propose, rng: np.random.Generator) -> NDArray[Any]:
    """Draw ``count`` values by rejection sampling, where a value's probability is proportional to its proposal
    probability times exp(-exponent).
    """
    proposals, exponents = propose(np.arange(count))
    drawn = np.array(proposals)
    left = np.flatnonzero(~exp_coin(exponents, count, rng))
    while left.size:
        proposals, exponents = propose(left)
        kept = exp_coin(exponents, left.size, rng)
        # Rejected rows are drawn again with fresh proposals, so that accepted ones keep their law.
        drawn[left[kept]] = proposals[kept]
        left = left[~kept]
    return drawn


def _small_exp_coin(gamma: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Exponents in [0, 1]: for K = 1, 2, ... until a coin of gamma / K fails; heads where the last K is odd."""
    passed = np.zeros(gamma.size, dtype=np.int64)
    flipped, divisor = np.flatnonzero(gamma), 1
    while flipped.size:
        won = coin(gamma[flipped], flipped.size, rng)
        # Probability gamma / K as a product of two exact coins: gamma, and 1 / K by an integer.
        if divisor > 1:
            won &= rng.integers(divisor, size=flipped.size, dtype=np.uint16) == 0
        flipped, divisor = flipped[won], divisor + 1
        passed[flipped] += 1
    return np.asarray(passed % 2 == 0)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True, eq=False)
class WeightedReports:
    """A list of reports with weights: ``sum(weights * f(reports))`` is the sum of f over all reports, or the integral
    of f if reports are continuous.

    Args:
        reports: (m, *report shape).
        weights: (m,), 1 for an output with positive probability, >= 0 for a quadrature node.
    """

    reports: NDArray[Any]
    weights: FloatArray


MOST_LISTED = 2**20


def check_listable(count: int) -> None:
    """Raise ValueError if a randomiser has too many possible reports to list them."""
    if count > MOST_LISTED:
        raise ValueError(f"there are {count} possible reports, too many to list: at most {MOST_LISTED} are allowed")


def finite(reports: ArrayLike) -> WeightedReports:
    """Return a list of all possible ``reports``, given as an array with one report per row; each report gets the weight
    1, so that a function's weighted sum over the list is its sum over all reports.
    """
    rows = np.asarray(reports)
    return WeightedReports(rows, np.ones(len(rows)))


def quadrature(breaks: Iterable[float]) -> WeightedReports:
    """Return Gauss-Legendre nodes and weights for the intervals between neighbouring ``breaks``; integrals of a density
    that is smooth within them are exact up to rounding.

    The breaks themselves are among the reports with weight 0, because suprema are attained there.
    """
    # Duplicate breaks would give intervals of length 0.
    edges = np.unique(np.fromiter(breaks, dtype=np.float64))
    half, middle = np.diff(edges)[:, np.newaxis] / 2, (edges[1:] + edges[:-1])[:, np.newaxis] / 2
    nodes, weights = middle + half * _NODES, half * _WEIGHTS
    return WeightedReports(
        np.concatenate([nodes.ravel(), edges]), np.concatenate([weights.ravel(), np.zeros(len(edges))])
    )


def labelled(labels: int, numbers: WeightedReports) -> WeightedReports:
    """Return every combination of a label in 0..labels-1 and one of ``numbers``, as rows (label, number) of floats."""
    columns = np.meshgrid(np.arange(labels, dtype=np.float64), numbers.reports, indexing="ij")
    return WeightedReports(np.stack([column.ravel() for column in columns], axis=-1), np.tile(numbers.weights, labels))


Reports = NDArray[Any]
NOT_GIVEN = math.nan
"""Default of a range that must be given; it is refused and never guessed."""
EVENT_TRIALS = 10**6
_TIED = 1e-8


class Masses(NamedTuple):
    """The probabilities of one event under the two values that reports distinguish best, the member's (with the canary)
    and the nonmember's (without).
    """

    member: float
    nonmember: float


class PairLaw(NamedTuple):
    """The two distributions of the report, ``member`` and ``nonmember``, under the two values that reports distinguish
    best, with their ``log_ratio``. Reports may be grouped by likelihood ratio; each array has the shape (k,) for k
    groups.
    """

    log_ratio: FloatArray
    member: FloatArray
    nonmember: FloatArray


@dataclass(frozen=True, kw_only=True)
class Randomiser:
    """A local DP mechanism of one client. The mechanism's fields are public, the client's value is private, and every
    report is drawn independently.

    A value has the randomiser's value shape (() for a number or a category, (d,) for a vector), a report its report
    shape; ``sample`` accepts and returns any leading dimensions. Subclasses define the law once, in ``log_density`` and
    ``outputs``. What is computed from it here (exact epsilon, event) uses that law and never the field ``epsilon``, so
    that it can contradict the claim.

    Args:
        epsilon: of the claim, > 0 and finite.
    """

    epsilon: float
    source: ClassVar[str]
    closed: ClassVar[bool] = False
    """Whether ``pair_law`` is in closed form, and no other pair has a larger ratio."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    @property
    def delta(self) -> float:
        """Return the delta of the privacy claim."""
        return 0.0

    @property
    def curve(self) -> Curve | None:
        """Return the trade-off curve that the privacy claim states; None if it states only epsilon and delta."""
        return None

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> Reports:
        """Draw one report for each value: ``values`` have the shape (..., *value shape), the result (..., *report
        shape). Raise ValueError for a value out of range.
        """
        raise NotImplementedError

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        """Return the log density or log probability of each of ``reports`` under one ``value``, shape (...,) for
        reports (..., *report shape); -inf if a report is impossible.

        ``value`` is a single one; a randomiser of one number also accepts one per report.
        """
        raise NotImplementedError

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        """Return all reports with weights, so that a weighted sum gives the sum or integral of any function over them;
        integration is split at the numbers in ``cuts``.
        """
        raise NotImplementedError

    def inputs(self) -> NDArray[Any]:
        """Return a set of input values, shape ``(k, *value shape)``; two of them attain the largest possible log-ratio
        of report probabilities.
        """
        return np.array(self.worst_pair())

    def worst_pair(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the two values that reports distinguish best, first the nonmember's (without the canary), then the
        member's (with it).
        """
        raise NotImplementedError

    def estimate(self, reports: ArrayLike) -> FloatArray:
        """Return the server's estimate of ``target(value)`` from each single report, array of shape (..., *target
        shape).
        """
        return np.asarray(reports, dtype=np.float64)

    def target(self, value: ArrayLike) -> FloatArray:
        """Return the quantity that the server estimates: the value itself or an encoding of it."""
        return np.asarray(value, dtype=np.float64)

    def expectation(self, value: ArrayLike) -> FloatArray:
        """Return the mean of the server's estimate of a category; a grid's decoder is computed from it."""
        raise NotImplementedError

    def pair_law(self) -> PairLaw:
        """Return the distributions of the report under the two values that reports distinguish best, by listing all
        reports; subclasses with too many reports use a closed formula.
        """
        nonmember, member = self.worst_pair()
        outputs = self.outputs(nonmember, member)
        # Breaks of a quadrature have weight 0; they matter for suprema but not for masses.
        reports, weights = (rows[outputs.weights > 0] for rows in (outputs.reports, outputs.weights))
        p, q = (weights * np.exp(self.log_density(reports, value)) for value in (member, nonmember))
        return PairLaw(self.log_ratio(reports), p, q)

    def exact_epsilon(self) -> float:
        """Compute the largest log-ratio of report probabilities over all possible reports and all pairs of
        ``inputs``.
        """
        if self.closed:
            return float(np.abs(self.pair_law().log_ratio).max())
        values = list(self.inputs())
        reports = self.outputs(*values).reports
        logs = np.array([self.log_density(reports, value) for value in values])
        # A report that no input can produce would give the undefined ratio of two zeros.
        possible = logs[:, np.isfinite(logs).any(axis=0)]
        return float((possible.max(axis=0) - possible.min(axis=0)).max())

    def log_ratio(self, reports: ArrayLike) -> FloatArray:
        """Return each report's log-likelihood ratio between the two values that reports distinguish best, member's over
        nonmember's, array of shape (...,).
        """
        nonmember, member = self.worst_pair()
        ahead, behind = self.log_density(reports, member), self.log_density(reports, nonmember)
        # A report that is impossible under both values is no evidence for the member.
        return np.subtract(ahead, behind, out=np.full_like(ahead, -np.inf), where=np.isfinite(ahead))

    def event(self, reports: ArrayLike, *, trials: int = EVENT_TRIALS) -> BoolArray:
        """Return whether each report has a likelihood ratio >= t, booleans ``(...,)``; the threshold t gives the best
        lower bound on epsilon from ``trials`` reports.

        The event is fixed from the law before any report is drawn (Neyman and Pearson 1933).
        """
        return np.asarray(self.log_ratio(reports) >= _event(self, trials)[0])

    def event_masses(self, *, trials: int = EVENT_TRIALS) -> Masses:
        """Return the exact probabilities, under the two values that reports distinguish best, of the event that the
        method ``event`` tests for each report; no two other values give the event a larger log-ratio of probabilities.
        """
        return _event(self, trials)[1]

    def claim(self) -> Claim:
        """Return the privacy claim about one report (or one coordinate) for any two values; the adversary is the
        server, which observes individual updates.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        # A claim's parameters must be numbers or strings; a default of None was not chosen.
        given = {name: value for name, value in fields.items() if value is not None}
        return report_claim(
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=1,
            mechanism=type(self).__name__,
            parameters={name: str(value) if isinstance(value, tuple) else value for name, value in given.items()},
            accountant="exact",
            source=self.source,
            curve=self.curve,
        )


@lru_cache(maxsize=256)
def _event(randomiser: Randomiser, trials: int) -> tuple[float, Masses]:
    """The smallest log-ratio in the best event, less a rounding, and the event's probabilities."""
    log_ratio, p, q = randomiser.pair_law()
    # A quadrature sums to 1 only up to rounding.
    inside = best_event(p / p.sum(), q / q.sum(), trials=trials, delta=randomiser.delta)
    # The margin keeps reports on the threshold inside whatever the rounding of their ratio.
    least = float(log_ratio[inside & (p > 0)].min()) - _TIED
    return least, Masses(float(p[inside].sum()), float(q[inside].sum()))


def _check_epsilon(epsilon: float) -> None:
    """ValueError unless 0 < epsilon < inf: at 0 a report may not depend on its value, at infinity nothing is hidden."""
    if not 0 < epsilon < math.inf:
        raise ValueError(
            f"epsilon must be > 0 and finite, got {epsilon}: at epsilon 0 a report cannot depend on its value, "
            "at infinity it does not hide the value"
        )


def check_radius(name: str, radius: float) -> None:
    """Raise ValueError unless the radius of a value's range is given, finite and above 0."""
    # NaN stands for a missing range, which gets its own message.
    if math.isnan(radius):
        raise ValueError(f"{name} must be given, because the noise is scaled to the range of a value")
    if not 0 < radius < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {radius}")


def check_given_count(name: str, count: int, *, least: int, most: float = math.inf) -> None:
    """Raise ValueError unless ``count`` is a whole number in [least, most]; a count of 0, the default, means that none
    was given.
    """
    # A missing number gets its own message, because 0 is the default of required fields.
    if count == 0 and least > 0 and not isinstance(count, bool):
        raise ValueError(f"{name} must be given and >= {least}, got 0, which means that it is missing")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not least <= count <= most:
        upper = "" if most == math.inf else f" and <= {most}"
        raise ValueError(f"{name} must be a whole number >= {least}{upper}, got {count!r}")


def numbers(values: ArrayLike, radius: float) -> FloatArray:
    """Return the values as floats; raise ValueError unless all lie in [-radius, radius]."""
    array = np.asarray(values, dtype=np.float64)
    # Refused and not clipped: a silent clip would change the mechanism, and NaN fails this comparison too.
    if not np.all(np.abs(array) <= radius):
        raise ValueError(f"values must lie in [-{radius}, {radius}]: clip them first, got {array.min()}..{array.max()}")
    return array


def vectors(values: ArrayLike, dimension: int, radius: float) -> FloatArray:
    """Return the values as floats of shape (..., dimension); raise ValueError if the last axis has another length or an
    entry is out of range.
    """
    array = numbers(values, radius)
    if array.shape[-1:] != (dimension,):
        raise ValueError(f"values must be vectors of shape (..., {dimension}), got shape {array.shape}")
    return array


def categories(values: ArrayLike, domain: int) -> IntArray:
    """Return the values as integers; raise ValueError unless all are whole numbers in 0..domain-1."""
    array = np.asarray(values)
    # Floats are refused even when whole: an encoding error upstream must not be rounded away.
    if array.dtype.kind not in "iu" or not np.all((array >= 0) & (array < domain)):
        raise ValueError(f"values must be whole numbers in 0..{domain - 1}, got {array!r}")
    return array.astype(np.int64)


Bits = NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Flips:
    """A randomiser of bits that flips a one with probability 1 / (1 + e^of_one) and a zero with probability 1 / (1 +
    e^of_zero); the fields ``of_one`` and ``of_zero`` are >= 0.
    """

    of_one: float
    of_zero: float

    @property
    def one(self) -> float:
        """Return the probability that a bit 1 is reported as 1."""
        return 1 / (1 + math.exp(-self.of_one))

    @property
    def zero(self) -> float:
        """Return the probability that a bit 0 is reported as 1."""
        return 1 / (1 + math.exp(self.of_zero))

    def sample(self, bits: Bits, rng: np.random.Generator) -> Bits:
        """Flip ``bits`` at random and return an array of the same shape; integer arithmetic makes the probabilities
        exact.
        """
        flat = bits.ravel()
        # The probability of a flip is 1 / (1 + e^x), which a fair coin and rejection give exactly.
        exponents = np.where(flat == 1, self.of_one, self.of_zero)

        def propose(rows: NDArray[np.intp]) -> tuple[Bits, FloatArray]:
            # A flip is proposed by a fair coin and kept with probability e^-exponent; no flip is always kept.
            flip = rng.integers(2, size=rows.size, dtype=np.int8)
            return flip, np.asarray(flip * exponents[rows], dtype=np.float64)

        return np.asarray(flat ^ rejection(flat.size, propose, rng), dtype=np.int8).reshape(bits.shape)

    def log_mass(self, reports: ArrayLike, bits: Bits) -> FloatArray:
        """Return the log probability of each of ``reports``, shape (..., m), given ``bits`` of shape (m,); the result
        has the shape (...,).
        """
        seen = np.asarray(reports)
        ones = np.where(bits == 1, self.one, self.zero)
        # log1p keeps the digits of probabilities close to 1.
        return np.asarray(np.where(seen == 1, np.log(ones), np.log1p(-ones)).sum(axis=-1))

    def estimate(self, reports: ArrayLike) -> FloatArray:
        """Return an unbiased estimate of each bit from its report, an array of the same shape."""
        return np.asarray((np.asarray(reports) - self.zero) / (self.one - self.zero))


def all_bits(length: int) -> WeightedReports:
    """Return all sequences of ``length`` bits, one per row of an array; raise ValueError for more than 20 bits."""
    check_listable(2**length)
    return finite(np.array(list(itertools.product((0, 1), repeat=length)), dtype=np.int8))


@dataclass(frozen=True, kw_only=True)
class FiniteDomain(Randomiser, ABC):
    """A base class of randomisers of whole numbers in 0..domain-1, which estimate the value's one-hot encoding.

    Args:
        domain: number of values, >= ``smallest_domain``.
    """

    domain: int = 0
    smallest_domain: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("domain", self.domain, least=self.smallest_domain)

    def inputs(self) -> IntArray:
        return np.arange(self.domain)

    def worst_pair(self) -> tuple[IntArray, IntArray]:
        # By symmetry of the values any two of them are a worst pair.
        return np.array(1), np.array(0)

    def target(self, value: ArrayLike) -> FloatArray:
        return np.asarray(categories(value, self.domain)[..., np.newaxis] == np.arange(self.domain), dtype=np.float64)

    def expectation(self, value: ArrayLike) -> FloatArray:
        return self.target(value)


class FlippedBits(FiniteDomain, ABC):
    """A base class of randomisers that encode a value as bits and flip each; they estimate the encoding."""

    @property
    def flips(self) -> Flips:
        """Return the randomiser of the bits."""
        raise NotImplementedError

    def encoded(self, values: ArrayLike) -> Bits:
        """Return the bits of each value, ``(..., length)``; by default one-hot."""
        return np.asarray(self.target(values), dtype=np.int8)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> Bits:
        return self.flips.sample(self.encoded(values), rng)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        return self.flips.log_mass(reports, self.encoded(value))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return all_bits(self.encoded(0).size)

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return self.flips.estimate(reports)


@dataclass(frozen=True, kw_only=True)
class BoundedNumber(Randomiser, ABC):
    """A base class of randomisers of one number whose report is itself the server's estimate; reports distinguish the
    two ends of the range best.

    Args:
        radius: values lie in [-radius, radius]; > 0 and finite.
    """

    radius: float = NOT_GIVEN
    atomic: ClassVar[bool] = False
    """Whether a report is one of finitely many numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_radius("radius", self.radius)

    @property
    def atoms(self) -> FloatArray:
        """Return all reports that have positive probability, ascending; empty if reports are continuous."""
        return np.sort(self.outputs().reports) if self.atomic else np.zeros(0)

    @property
    def largest(self) -> float:
        """Return the largest absolute value of a report that is no atom; infinity if there is none."""
        return math.inf

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        return np.array(-self.radius), np.array(self.radius)
