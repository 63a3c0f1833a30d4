"""Draw unequal privacy budgets and assign them to clients (Liu et al. 2023, APES, Table 2)."""

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.stats import norm

from ....audit.arrays import FloatArray, IntArray
from ....audit.wording import nearest
from ....fl.fields import check_positive
from ....fl.streams import Streams
from ...defense import check_share

Quantiles = Callable[[int], FloatArray]
MOST_LOCAL = 50.0
"""Largest local budget of one number that is accounted for; at it a false report has probability e^-50."""
_LEAST_DELTA = 1e-12


def deal(name: str, clients: int, scale: float = 1.0) -> tuple[float, ...]:
    """Return one budget per client: quantiles of a distribution from Table 2 of the APES paper, multiplied by
    ``scale``.

    The result is public and the same for every run: the (i + 1/2)/n quantiles of the distribution, clipped to its
    range, in an order that is fixed for each n, so that budgets do not follow a partition which sorts clients by label.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.
    """
    # A value of a suite file may be a list, which has no hash.
    if not isinstance(name, str) or name not in _TABLE_2:
        raise ValueError(
            f"budgets, the distribution of clients' budgets, must be one of: {nearest(str(name), _TABLE_2)}; "
            f"got {name!r}"
        )
    quantiles, low, high = _TABLE_2[name]
    budgets = np.clip(quantiles(clients), low, high)
    return tuple((scale * budgets[_order(clients)]).tolist())


def check_budget_scale(name: str, scale: float | None, *, noise: float = 1.0) -> None:
    """Raise ValueError for an unknown distribution of budgets, or for a scale that makes the largest budget invalid.

    A scale, where given, must be above 0, and the largest budget that it gives, at ``noise`` times its noise, at most
    50.
    """
    deal(name, 1)
    if scale is None:
        return
    check_positive("budget_scale", scale)
    if (largest := scale * _TABLE_2[name][2] / noise) > MOST_LOCAL:
        raise ValueError(
            f"budget_scale must give local budgets of at most {MOST_LOCAL:g}, got {scale:g}, which gives a "
            f"largest local budget of {largest:g}"
        )


def check_local(local: float | None) -> None:
    """Raise ValueError if a local epsilon is given and not in (0, 50]."""
    if local is None:
        return
    check_positive("local_epsilon", local)
    if local > MOST_LOCAL:
        raise ValueError(f"local_epsilon must be at most {MOST_LOCAL:g}, got {local:g}")


def check_coordinate_delta(delta: float) -> None:
    """Raise ValueError unless a coordinate's delta is in (0, 1) and large enough for sums in double precision."""
    check_share("coordinate_delta", delta)
    if delta < _LEAST_DELTA:
        raise ValueError(
            f"coordinate_delta must be >= {_LEAST_DELTA:g}: sums in double precision cannot represent a smaller "
            f"one, got {delta:g}"
        )


def representative_clients(budgets: tuple[float, ...]) -> tuple[int, ...]:
    """Return three clients for which claims are stated: those with the smallest, the median and the largest budget."""
    # A stable sort picks the same clients on every platform.
    order = np.argsort(budgets, kind="stable")
    chosen = (int(order[0]), int(order[(len(order) - 1) // 2]), int(order[-1]))
    return tuple({budgets[client]: client for client in chosen}.values())


@cache
def _order(clients: int) -> IntArray:
    # Raw bits and a stable sort, not `permutation`, whose result may change with numpy's version.
    raw = Streams(0).generator("budgets").bit_generator.random_raw(clients)
    return np.argsort(np.asarray(raw), kind="stable").astype(np.int64)


def _levels(count: int) -> FloatArray:
    return np.asarray((np.arange(count) + 0.5) / max(count, 1), dtype=np.float64)


def _uniform(low: float, high: float) -> Quantiles:
    return lambda count: np.asarray(low + (high - low) * _levels(count), dtype=np.float64)


def _normal(*parts: tuple[float, float]) -> Quantiles:
    """Normal laws of variance 1: (mean, share of the clients) each."""

    def quantiles(count: int) -> FloatArray:
        # Rounding the ends and not the sizes keeps the total at the number of clients.
        ends = np.rint(np.cumsum([0.0, *(share for _, share in parts)]) * count).astype(int)
        each = [
            norm.ppf(_levels(int(end - start)), loc=mean)
            for (mean, _), start, end in zip(parts, ends[:-1], ends[1:], strict=True)
        ]
        return np.asarray(np.concatenate(each), dtype=np.float64)

    return quantiles


_TABLE_2: dict[str, tuple[Quantiles, float, float]] = {
    "uniform1": (_uniform(0.05, 0.5), 0.05, 0.5),
    "uniform2": (_uniform(0.05, 1.0), 0.05, 1.0),
    "gauss1": (_normal((0.1, 1.0)), 0.05, 0.5),
    "gauss2": (_normal((0.2, 1.0)), 0.05, 1.0),
    "mix_gauss1": (_normal((0.1, 0.9), (0.5, 0.1)), 0.05, 0.5),
    "mix_gauss2": (_normal((0.2, 0.9), (1.0, 0.1)), 0.05, 1.0),
}
KNOWN_BUDGETS = tuple(_TABLE_2)
