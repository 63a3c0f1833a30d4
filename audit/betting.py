"""Bets on guesses of which runs contained the canary, against everything that a claim's trade-off curve allows at once.

Whatever the event A ("guess: with the canary") is, the curve f bounds its rates by each of its tangents: ``u P1(A) + v
P0(not A) <= 2`` for the pair (u, v) of that tangent, where P1 is with and P0 without the canary. So a *stake* that pays
u for a right guess in a run with the canary, v for one in a run without it, and nothing for a wrong guess, earns at
most 2 in a pair of such runs, and so does a mixture of stakes and of money that is not staked, which counts as 2 in the
run of one arm and as 0 in the other. If F1
and F0 are what a mixture pays in the two runs of a pair, ``E[F1] E[F0] <= ((E[F1] + E[F0]) / 2)^2 <= 1``, because the
runs are independent. The product over pairs is therefore a nonnegative supermartingale under the claim, if the mixture
for a pair is fixed before it is run: it ever reaches 1 / alpha with probability at most alpha (Ville 1939).

Among all tests of independent runs none grows faster than the best such mixture: mixtures of all events and tangents
are the dual of the projection of the truth onto the claim by Kullback-Leibler divergence (Larsson, Ramdas, Ruf 2025).
The best mixture for counted cells of a score is Cover's (1984) log-optimal portfolio of stakes, with pseudo-counts of
money kept, so that few runs stake little.
"""

import math

import numpy as np
from scipy.special import ndtr, ndtri

from .arrays import FloatArray
from .bisection import crossing
from .curve import Curve, ProfileCurve, Tangent

_NORMAL_STEPS = (-3.0, -1.5, -0.7, 0.0, 0.7, 1.5, 3.0)
"""Where a curve is tested: the false-positive rates of thresholds so many deviations from the middle of the curve."""
_LAST_BARRIER = 1e-4
"""Pseudo-counts of every stake."""
KEPT = 2
"""The first columns of ``payments`` are no stakes, but money kept for the runs of one arm."""


def tangents_of(curve: Curve) -> tuple[Tangent, ...]:
    """Return the tangents of a trade-off curve on which bets are placed; the curve of one (epsilon, delta) pair has two
    tangents.
    """
    if isinstance(curve, ProfileCurve) and len(curve.epsilons) == 1:
        epsilon, remove, add = curve.epsilons[0], curve.delta_remove[0], curve.delta_add[0]
        return Tangent(epsilon, remove, False), Tangent(epsilon, add, True)
    middle = crossing(lambda rate: float(curve.fnr(rate)) > rate, high=0.5)[0]
    rates = np.clip(ndtr(ndtri(max(middle, 1e-9)) + np.array(_NORMAL_STEPS)), 1e-9, 1 - 1e-9)
    return tuple(dict.fromkeys(Tangent.at(curve, float(rate)) for rate in rates))


def pays(tangents: tuple[Tangent, ...]) -> FloatArray:
    """Return what a bet on each tangent pays if the bet is right, ``(k, 2)``: in runs with and in runs without the
    canary.
    """
    rows = []
    for one in tangents:
        rare = 2 / (math.exp(one.epsilon) + one.delta)
        often = math.exp(one.epsilon) * rare
        rows.append((often, rare) if one.complement else (rare, often))
    return np.array(rows)


def payments(cells: int, paid: FloatArray) -> FloatArray:
    """Return what every stake pays, ``(2, cells, stakes)``, for runs with and runs without the canary whose score lies
    in each of ``cells`` ascending cells.

    After the ``KEPT`` columns, one stake for each of the ``paid`` pairs (k, 2), each cut between cells and each
    direction: a guess is "with the canary" above the cut, or below it.
    """
    above = np.arange(cells)[:, np.newaxis] > np.arange(cells - 1)
    guessed = np.concatenate([above, ~above], axis=1)[:, :, np.newaxis]
    staked = np.stack([guessed * paid[:, 0], ~guessed * paid[:, 1]])
    kept = np.zeros((2, cells, KEPT))
    kept[0, :, 0] = kept[1, :, 1] = 2.0
    return np.concatenate([kept, staked.reshape(2, cells, -1)], axis=2)


def best_mixture(counts: FloatArray, paid: FloatArray, kept: FloatArray, iterations: int = 14) -> FloatArray:
    """Return the shares ``(stakes, levels)`` of the mixtures of bets whose capital would have grown most on counted
    runs.

    ``counts``: (2, cells) runs with and without the canary; ``paid``: as ``payments`` returns it; ``kept``: (levels,)
    imaginary runs, added to those counted, on which only money that is not staked pays, so that few runs stake little.
    By a primal-dual interior-point method; a bound by mixtures that are not quite the best ones is valid too.
    """
    rows, weights = paid.reshape(-1, paid.shape[2]), counts.ravel()
    prior = np.full((len(kept), rows.shape[1]), _LAST_BARRIER)
    prior[:, :KEPT] += kept[:, np.newaxis] / KEPT
    total = weights.sum() + prior.sum(axis=1, keepdims=True)
    shares, barrier = np.full(prior.shape, 1 / rows.shape[1]), total / rows.shape[1]
    # The slack of a stake: by how much less than the mixture it earned. At the best mixture share times slack is 0, but
    # for pseudo-counts.
    slack = barrier / shares
    for _ in range(iterations):
        barrier = np.maximum(barrier / 4, 1e-300)
        wanted = prior + barrier
        earned = shares @ rows.T
        root = np.sqrt(weights) / earned
        scale = shares / slack
        residual = (weights / earned) @ rows - total + wanted / shares
        # The Hessian is diagonal but for as many ranks as there are cells (Woodbury).
        inner = (
            np.eye(len(weights))
            + root[:, :, np.newaxis] * ((scale[:, np.newaxis] * rows) @ rows.T) * root[:, np.newaxis]
        )
        along = root * ((scale * residual) @ rows.T)
        solved = root * np.linalg.solve(inner, along[:, :, np.newaxis])[:, :, 0]
        step = scale * (residual - solved @ rows)
        slack_step = wanted / shares - slack - step / scale
        shares = shares + _inside(shares, step) * step
        slack = slack + _inside(slack, slack_step) * slack_step
    return np.asarray((shares / shares.sum(axis=1, keepdims=True)).T, dtype=np.float64)


def _inside(values: FloatArray, step: FloatArray) -> FloatArray:
    """The part of a step, up to 1, that leaves every value above 0."""
    reach = np.divide(values, -step, out=np.full_like(step, np.inf), where=step < 0).min(axis=1, keepdims=True)
    return np.asarray(np.minimum(1.0, 0.95 * reach), dtype=np.float64)


def growth(fpr: FloatArray, fnr: FloatArray, curve: Curve, cells: int = 60) -> float:
    """Return the growth of the logarithm of the best mixture's capital per pair of runs, in bets against a claim's
    curve.

    ``fpr``, ``fnr``: (k,) the error rates of a score at ascending thresholds; 0 where no bet grows.
    """
    places = np.unique(np.linspace(0, len(fpr) - 1, cells).astype(int))
    below_out, below_in = (np.r_[0.0, rates, 1.0] for rates in (1 - fpr[places], fnr[places]))
    chances = np.maximum(np.diff(np.stack([below_in, below_out]), axis=1), 0.0)
    paid = payments(chances.shape[1], pays(tangents_of(curve)))
    shares = best_mixture(1e9 * chances, paid, np.array([1e-3]), iterations=60)[:, 0]
    found = float((chances * np.log(np.maximum(paid @ shares, 1e-300))).sum())
    return found if found > _NO_GROWTH else 0.0


_NO_GROWTH = 1e-9


def allowed(shares: FloatArray, paid: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """Return half of the largest amount that bets can earn on average in a pair of runs under (``epsilon``,
    ``delta``)-DP.

    ``shares``: (..., k) on each of the ``paid`` pairs (k, 2) of a right guess; the rest is kept. Grows with epsilon.
    """
    # Corners of the rates of right guesses that (epsilon, delta)-DP allows.
    middle = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    corners = np.array([[middle, delta, 1.0], [middle, 1.0, delta]])
    return np.asarray(1 - shares @ (1 - (paid @ corners).max(axis=1) / 2), dtype=np.float64)
