"""Define the base class of local DP mechanisms, with exact density, exact epsilon and privacy claim."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.estimators.pairwise_event import best_event
from ...audit.observer import UPLOADS
from .outputs import WeightedReports

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
    """A local DP mechanism of one client. Its fields are public, the value is private, and every report is drawn
    independently.

    A value has the randomiser's value shape (() for a number or a category, (d,) for a vector), a report its report
    shape; ``sample`` accepts and returns any leading dimensions. Subclasses define the law once, in ``log_density`` and
    ``outputs``. What is computed from it here (exact epsilon, event) uses that law and never the field ``epsilon``, so
    that it can contradict the claim.

    Args:
        epsilon: of the claim, > 0 and finite.
    """

    epsilon: float
    source: ClassVar[str]
    unit: ClassVar[Unit] = Unit.REPORT
    unbiased: ClassVar[bool] = True
    closed: ClassVar[bool] = False
    """Whether ``pair_law`` is in closed form, and no other pair has a larger ratio."""

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    @property
    def failure(self) -> float:
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
        raise NotImplementedError

    def worst_pair(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the two values that reports distinguish best, first the nonmember's (without the canary), then the
        member's (with it).
        """
        raise NotImplementedError

    def estimate(self, reports: ArrayLike) -> FloatArray:
        """Return the server's estimate of ``target(value)`` from each single report, array of shape (..., *target
        shape).
        """
        raise NotImplementedError

    def variance(self, value: ArrayLike) -> FloatArray:
        """Return the variance of each coordinate of the server's estimate by a closed formula, array of shape (*target
        shape).
        """
        raise NotImplementedError

    def target(self, value: ArrayLike) -> FloatArray:
        """Return the quantity that the server estimates: the value itself or an encoding of it."""
        return np.asarray(value, dtype=np.float64)

    def expectation(self, value: ArrayLike) -> FloatArray:
        """Return the mean of the server's estimate; it equals ``target(value)`` if the randomiser is ``unbiased``."""
        return self.target(value)

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
        return Claim(
            epsilon=self.epsilon,
            delta=self.failure,
            unit=self.unit,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            rounds=1,
            dp_model="local",
            mechanism=type(self).__name__,
            parameters={name: str(value) if isinstance(value, tuple) else value for name, value in given.items()},
            accountant="exact",
            sampling="none assumed",
            trust="nobody",
            source=self.source,
            curve=self.curve,
        )


@lru_cache(maxsize=256)
def _event(randomiser: Randomiser, trials: int) -> tuple[float, Masses]:
    """The smallest log-ratio in the best event, less a rounding, and the event's probabilities."""
    log_ratio, p, q = randomiser.pair_law()
    # A quadrature sums to 1 only up to rounding.
    inside = best_event(p / p.sum(), q / q.sum(), trials=trials, delta=randomiser.failure)
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
