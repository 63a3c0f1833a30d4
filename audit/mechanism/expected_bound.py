"""The lower bound on epsilon that counted trials are expected to show, from rates seen in a pilot."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ..arrays import FloatArray
from ..power.cut import CountingPlan

# The exact test of a ratio errs by so much more than its normal approximation, because it bounds an unknown rate.
_LOSS = 1.1


def selection_bias(likely: FloatArray, rare: FloatArray, pilot: int, compared: int = 1) -> FloatArray:
    """Return by how many standard errors the best of many thresholds looks better than it is.

    ``likely``, ``rare``: (k,) the rates of ``pilot`` trials above each threshold, on either input. Each halving of an
    event is one more look at the pilot, so that the bias grows with rarity as in the law of the iterated logarithm.
    ``compared``: the number of scores or events of which the best is taken; they look at much the same, so that only
    the fourth root of their number counts as looks of their own.
    """
    looks = 2 - np.log(np.maximum((likely + rare) / 2, 1 / pilot))
    return np.asarray(np.sqrt(2 * np.log(looks) + np.log(compared) / 2), dtype=np.float64)


def raised_rate(likely: FloatArray, rare: FloatArray, pilot: int, z: FloatArray | float) -> FloatArray:
    """Return the rate of an event where it is rare, raised by ``z`` standard errors of the ratio of its rates.

    ``likely``, ``rare``: rates of ``pilot`` trials on the input where the event is likelier, and on the other.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # Relative variance of the ratio, in units of that of the rare count; one more, because none seen is not none.
        spread = np.sqrt(np.maximum(1 + (rare + 1 / pilot) / likely - 2 * rare, 0.0))
        raised = _poisson_upper(rare * pilot, z * spread) / pilot
    return np.asarray(np.where(likely > 0, raised, rare), dtype=np.float64)


def expected_bound(likely: ArrayLike, rare: ArrayLike, plan: CountingPlan, *, fair_coins: bool) -> FloatArray:
    """Return the bound expected of two counts whose ratio is at most ``e^epsilon``; it may be negative.

    ``likely``, ``rare``: the two rates, per trial of each input, of any broadcastable shapes. ``fair_coins``: whether
    coins choose the inputs of the counted trials (``guess_odds``); otherwise the rates are those of one event in
    equally many trials per input (``event_ratio``), whose counts vary less.
    """
    often, seldom = np.broadcast_arrays(np.asarray(likely, dtype=np.float64), np.asarray(rare, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = 1 + seldom / often - (0.0 if fair_coins else 2 * seldom)
        z = float(ndtri(1 - plan.alpha)) * np.sqrt(np.maximum(variance, 0.0)) * (1.0 if fair_coins else _LOSS)
        bound = np.log(often * plan.trials) - np.log(_poisson_upper(seldom * plan.trials, z))
    # Nothing likely shows nothing; nor do rates of 0 and 0.
    return np.asarray(np.where(often > 0, bound, -math.inf), dtype=np.float64)


def _poisson_upper(count: FloatArray, z: FloatArray) -> FloatArray:
    """An upper bound on the mean of a Poisson count at ``z`` normal deviations (Wilson and Hilferty 1931)."""
    more = count + 1
    return np.asarray(more * (1 - 1 / (9 * more) + z / (3 * np.sqrt(more))) ** 3, dtype=np.float64)
