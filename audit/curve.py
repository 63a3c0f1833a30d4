"""Trade-off curves of claims, and conversions between mu-GDP and (epsilon, delta)-DP.

The conversions go by the hockey-stick divergence of two Gaussians: ``delta = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu -
mu/2)`` (Balle and Wang 2018, theorem 8; Dong, Roth, Su 2022, corollary 1). It is computed with logarithms, because the
printed formula is 0 or overflows for small and large mu.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from .arrays import FloatArray
from .binomial import check_delta, check_number
from .bisection import crossing
from .wording import unknown


def delta_from_mu(mu: float, epsilon: float) -> float:
    """Return the smallest delta at which a mu-GDP mechanism is (``epsilon``, delta)-DP.

    ``epsilon`` >= 0 and ``mu`` >= 0. Raises ValueError outside these ranges.
    """
    return math.exp(_log_delta(mu, epsilon))


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which a mu-GDP mechanism is (epsilon, ``delta``)-DP, for delta in [0, 1).

    It is infinite at delta 0 and mu > 0. Raises ValueError for mu < 0 and for a delta out of range.
    """
    _check(mu, 0.0, delta)
    if mu == 0:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # Bracket from above: at this epsilon the first term alone, Phi(-eps/mu + mu/2), is already equal to delta.
    high = mu * mu / 2 - mu * float(ndtri(delta))
    return crossing(lambda epsilon: _log_delta(mu, epsilon) > target, high=high, relative=0.0)[0]


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest mu for which every mu-GDP mechanism is (``epsilon``, ``delta``)-DP; 0 at delta 0.

    The inverse of ``epsilon_from_mu``. Raises ValueError for an infinite epsilon, which every mu satisfies.
    """
    _check(0.0, epsilon, delta)
    if math.isinf(epsilon):
        raise ValueError(f"epsilon must be finite, got {epsilon}")
    if delta == 0:
        return 0.0
    target = math.log(delta)
    high = 1.0
    while _log_delta(high, epsilon) <= target:
        high *= 2
    return crossing(lambda mu: _log_delta(mu, epsilon) <= target, high=high, relative=0.0)[0]


def _log_delta(mu: float, epsilon: float) -> float:
    _check(mu, epsilon, 0.0)
    if mu == 0:
        return -math.inf
    left = float(log_ndtr(mu / 2 - epsilon / mu))
    right = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # Far out in the tail both terms agree to the last digit, and delta is 0 to double precision.
    return left + math.log(-math.expm1(right - left)) if right < left else -math.inf


def _check(mu: float, epsilon: float, delta: float) -> None:
    if not mu >= 0:
        raise ValueError(f"mu must be >= 0, got {mu}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    check_delta(delta)


@dataclass(frozen=True)
class GaussianCurve:
    """The trade-off curve of mu-GDP: at FPR ``a`` the smallest FNR is ``Phi(Phi^-1(1 - a) - mu)`` (Dong, Roth, Su 2022,
    eq. 6).

    ``mu``: sensitivity over noise standard deviation, >= 0 and finite, else ValueError.
    """

    mu: float

    def __post_init__(self) -> None:
        check_number("mu", self.mu)
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise ValueError(f"mu must be >= 0 and finite, got {self.mu}")
        object.__setattr__(self, "mu", float(self.mu))

    def fnr(self, fpr: ArrayLike) -> FloatArray:
        """Return the smallest false-negative rate that the claim allows at each false-positive rate in ``fpr``.

        ``fpr``: any shape, in [0, 1]; the result has the same shape.
        """
        return np.asarray(ndtr(-ndtri(_rates(fpr)) - self.mu), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return {"family": "gaussian", "mu": self.mu}


@dataclass(frozen=True)
class ProfileCurve:
    """The trade-off curve that several (epsilon, delta) guarantees imply, with separate deltas for adding and removing
    a unit.

    ``delta_remove[i]`` is the hockey-stick divergence H_{e^epsilon}(with the unit || without it), ``delta_add[i]`` is
    H_{e^epsilon}(without || with). Raises ValueError unless the three tuples are equally long and not empty, epsilons
    are >= 0 and finite, and deltas lie in [0, 1].
    """

    epsilons: tuple[float, ...]
    delta_remove: tuple[float, ...]
    delta_add: tuple[float, ...]

    def __post_init__(self) -> None:
        for field in ("epsilons", "delta_remove", "delta_add"):
            object.__setattr__(self, field, tuple(float(value) for value in getattr(self, field)))
        lengths = [len(self.epsilons), len(self.delta_remove), len(self.delta_add)]
        if len(set(lengths)) != 1 or lengths[0] == 0:
            raise ValueError(
                "epsilons, delta_remove and delta_add of a trade-off curve must be equally long and not empty, "
                f"got {lengths}"
            )
        for epsilon in self.epsilons:
            if not (math.isfinite(epsilon) and epsilon >= 0):
                raise ValueError(f"epsilons must be >= 0 and finite, got {epsilon}")
        for delta in self.delta_remove + self.delta_add:
            if not 0 <= delta <= 1:
                raise ValueError(f"deltas must lie in [0, 1], got {delta}")

    @cached_property
    def _knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.asarray(self.epsilons), np.asarray(self.delta_remove), np.asarray(self.delta_add)

    def fnr(self, fpr: ArrayLike, *, losses: float = 1.0) -> FloatArray:
        """Return the smallest false-negative rate that the claim allows at each false-positive rate in ``fpr``.

        ``fpr``: any shape, in [0, 1]; the result has the same shape. ``losses``: factor of all epsilons. The formula is

        ``max_i max(0, 1 - delta_remove_i - e^eps_i a, e^-eps_i (1 - delta_add_i - a))``: every (epsilon, delta) pair is
        a guarantee by itself, and the strongest one holds.
        """
        # No interpolation between the knots: a chord lies above the convex f and would refute correct mechanisms.
        rates = _rates(fpr)[..., np.newaxis]
        epsilons, delta_remove, delta_add = self._knots
        epsilons = losses * epsilons
        with np.errstate(divide="ignore", over="ignore"):
            remove = 1 - delta_remove - np.exp(epsilons + np.log(rates))
        add = np.exp(-epsilons) * (1 - delta_add - rates)
        return np.asarray(np.maximum(0.0, np.maximum(remove, add).max(axis=-1)), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return {
            "family": "profile",
            "epsilons": list(self.epsilons),
            "delta_remove": list(self.delta_remove),
            "delta_add": list(self.delta_add),
        }


Curve = GaussianCurve | ProfileCurve


@dataclass(frozen=True)
class Tangent:
    """One (``epsilon``, ``delta``) guarantee that a trade-off curve implies: its tangent at one false-positive rate.

    It bounds the rate of an event with the unit by ``e^epsilon`` times the rate without it plus ``delta``; with
    ``complement`` the rate of the event's complement without the unit by that with it.
    """

    epsilon: float
    delta: float
    complement: bool

    @classmethod
    def at(cls, curve: "GaussianCurve | ProfileCurve", fpr: float) -> "Tangent":
        """Return the tangent of ``curve`` at the false-positive rate ``fpr`` in (0, 1)."""
        if isinstance(curve, GaussianCurve):
            # The logarithm of minus the slope is the loss at the threshold of this rate.
            loss = float(-ndtri(fpr)) * curve.mu - curve.mu**2 / 2
            return cls(abs(loss), delta_from_mu(curve.mu, abs(loss)), loss < 0)
        epsilons = np.asarray(curve.epsilons)
        with np.errstate(over="ignore"):
            remove = 1 - np.asarray(curve.delta_remove) - np.exp(epsilons + math.log(fpr))
        add = np.exp(-epsilons) * (1 - np.asarray(curve.delta_add) - fpr)
        complement = bool(add.max() > remove.max())
        best = int(np.argmax(add if complement else remove))
        deltas = curve.delta_add if complement else curve.delta_remove
        return cls(curve.epsilons[best], deltas[best], complement)

    def fnr(self, fpr: ArrayLike) -> FloatArray:
        """Return the smallest false-negative rate that this guarantee alone allows, of the shape of ``fpr``."""
        rates = _rates(fpr)
        line = (1 - self.delta - rates) * math.exp(-self.epsilon)
        found = line if self.complement else 1 - self.delta - math.exp(self.epsilon) * rates
        return np.asarray(np.maximum(0.0, found), dtype=np.float64)


def curve_from_dict(fields: Mapping[str, Any]) -> Curve:
    """Build a trade-off curve from the dictionary of its fields, as stored with a claim.

    The inverse of ``to_dict``. Raises ValueError for an unknown family.
    """
    family = str(fields.get("family"))
    if family == "gaussian":
        return GaussianCurve(mu=fields["mu"])
    if family == "profile":
        return ProfileCurve(fields["epsilons"], fields["delta_remove"], fields["delta_add"])
    raise unknown("curve family", family, ("gaussian", "profile"))


def _rates(fpr: ArrayLike) -> FloatArray:
    rates = np.asarray(fpr, dtype=np.float64)
    if not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError(f"fpr must lie in [0, 1], got {fpr!r}")
    return rates
