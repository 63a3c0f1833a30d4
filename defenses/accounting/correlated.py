"""Noise that is correlated over rounds: matrix factorisations, their error, and the exact sensitivity of releases.

In round t the server releases x_t + sum_s W[t, s] z_s, where x_t is the sum of the clipped updates and the z_s are
independent Gaussian vectors. With W = C^-1 this is the matrix mechanism with the strategy C (Denisov et al. 2022): the
noise of a sum over the first rounds, (A W z)_t with A the lower triangle of ones, nearly cancels. Everything released
together is one Gaussian vector with the covariance W W^T, so that a client who adds u_t in round t moves it by
sqrt(sum_st u_s^T (W W^T)^-1[s, t] u_t) standard deviations: the sensitivity is that of what is released, whatever the
factorisation. That is never larger than the sensitivity of C x, and smaller for a tree whose nodes are not all used.

Sources: tree aggregation with restarts (Kairouz et al. 2021); estimates from all finished nodes (Honaker 2015); the
optimal dense factorisation (Denisov et al. 2022); BandMF (Choquette-Choo et al. 2023); square roots, whole
(Fichtenberger et al. 2023) or in bands (Kalinin and Lampert 2024), and banded inverse square roots (BISR, Kalinin et
al. 2025); BLT (McMahan et al. 2024). Errors are root mean squares over all prefix sums, of noise of standard deviation
1 per z_s.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from scipy.linalg import block_diag, solve_triangular, toeplitz
from scipy.optimize import minimize

from ...audit.arrays import FloatArray
from ...fl.fields import check_count

Kind = Literal[
    "independent",
    "tree",
    "honaker",
    "dense",
    "banded",
    "banded_square_root",
    "square_root",
    "banded_inverse_square_root",
    "blt",
]
BANDED = ("independent", "banded", "banded_square_root")
"""The kinds whose strategy C has only so many bands as are asked for: Poisson samples amplify them."""
_STEPS, _CLOSE = 2000, 1e-10
"""Steps of an optimisation at most, and relative change of its numbers from which it has ended."""


@dataclass(frozen=True, eq=False)
class CorrelatedNoise:
    """Noise that is correlated between rounds: its vector in round t is ``sum_s weights[t, s] z_s``, with ``weights
    (rounds, draws)`` and independent z_s.

    Raises ValueError where two rounds' noise is not linearly independent: something would be released without noise.
    """

    weights: FloatArray

    def __post_init__(self) -> None:
        known = self.weights.ndim == 2 and np.isfinite(self.weights).all()
        if not known or np.linalg.matrix_rank(self.weights) < len(self.weights):
            raise ValueError(
                "weights must have one row per round, linearly independent of the others, "
                f"got shape {self.weights.shape}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CorrelatedNoise) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash(self.weights.tobytes())

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.weights)

    @cached_property
    def precision(self) -> FloatArray:
        """The inverse of the covariance of the released noise over the rounds, ``(rounds, rounds)``."""
        return self._precision(self.rounds)

    @property
    def error(self) -> float:
        """The root mean square of the noise's standard deviation in all prefix sums of the releases."""
        return math.sqrt(float(np.square(np.cumsum(self.weights, axis=0)).sum()) / self.rounds)

    def terms(self, number: int) -> Iterator[tuple[int, float]]:
        """Yield the random draws that make up the noise of a round, with their weights."""
        row = self.weights[number]
        return ((int(draw), float(row[draw])) for draw in np.flatnonzero(row))

    def sensitivity(self, schema: "Participation", rounds: int | None = None) -> float:
        """Return the joint sensitivity of the first ``rounds`` >= 1 releases (by default all): the largest move, in
        standard deviations of noise of scale 1, that a client with contributions of norm 1 can cause.

        Exact where no two rounds in which a client takes part have a negative entry in ``precision``, and where the
        schema lists its patterns; an upper bound otherwise.
        """
        precision = self.precision if rounds is None else self._precision(rounds)
        return math.sqrt(schema.largest(np.abs(precision)))

    def _precision(self, rounds: int) -> FloatArray:
        first = self.weights[:rounds]
        return np.asarray(np.linalg.inv(first @ first.T), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Participation:
    """A rule for the rounds in which one client may take part.

    Args:
        period: length of a pass in rounds; a client takes part once per pass. 1: in every round.
        same: whether a client has the same place in each pass, so that its rounds are ``period`` apart.
    """

    period: int = 1
    same: bool = True

    def __post_init__(self) -> None:
        check_count("period", self.period)

    def most(self, rounds: int) -> int:
        """Return the largest number of times that one client may take part in so many rounds."""
        return -(-rounds // self.period)

    def patterns(self, rounds: int) -> Iterator[tuple[int, ...]]:
        """Yield every maximal set of rounds in which a client may take part."""
        starts = range(0, rounds, self.period)
        if self.same:
            yield from (tuple(range(place, rounds, self.period)) for place in range(min(self.period, rounds)))
        else:
            yield from itertools.product(*(range(start, min(start + self.period, rounds)) for start in starts))

    def largest(self, precision: FloatArray) -> float:
        """Return the largest sum of ``precision (rounds, rounds)``, with entries >= 0, over the pairs of rounds of one
        pattern. The result is exact if a client keeps its place in every pass, and otherwise an upper bound.
        """
        rounds = len(precision)
        if self.same or self.period == 1:
            return max(float(precision[np.ix_(rows, rows)].sum()) for rows in map(list, self.patterns(rounds)))
        starts = np.arange(0, rounds, self.period)
        # Of each two passes the largest entry, wherever the client's places are; of one pass the diagonal alone.
        most = np.maximum.reduceat(np.maximum.reduceat(precision, starts, axis=0), starts, axis=1)
        np.fill_diagonal(most, np.maximum.reduceat(np.diag(precision), starts))
        return float(most.sum())


@lru_cache(maxsize=64)
def correlated_noise(
    kind: Kind, rounds: int, *, schema: Participation | None = None, bands: int = 0, restart: int = 0
) -> CorrelatedNoise:
    """Build the noise of one kind, for a training of so many rounds.

    Args:
        schema: for which participations ``banded`` and ``blt`` are optimised; by default a single one.
        bands: of the strategy (or its inverse, for ``banded_inverse_square_root``); of ``blt`` the number of buffers.
        restart: rounds after which the noise begins anew; 0: never.

    Raises:
        ValueError: for an unknown kind, numbers that are no whole numbers >= 1, or bands where the kind has none.
    """
    check_count("rounds", rounds)
    check_count("restart", restart, least=0)
    check_count("bands", bands, least=0)
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
    takes_bands = "banded" in kind or kind == "blt"
    if takes_bands != bool(bands):
        raise ValueError(f"bands must be {'>= 1' if takes_bands else '0'} for noise of the kind {kind}, got {bands}")
    each = min(restart or rounds, rounds)
    one = _WEIGHTS[kind](each, min(bands, each), schema or Participation(period=rounds))
    parts = [one] * (rounds // each)
    if rest := rounds % each:
        # The last part is the beginning of one, as it would be if the training went on.
        parts.append(one[:rest, np.flatnonzero(one[:rest].any(axis=0))])
    return CorrelatedNoise(np.asarray(block_diag(*parts), dtype=np.float64))


def _differences(decoder: FloatArray) -> FloatArray:
    """The weights of single rounds, from those of prefix sums."""
    return np.diff(decoder, axis=0, prepend=0.0)


def _nodes(rounds: int) -> list[tuple[int, int]]:
    """First and last round, after it, of each node of a binary tree that is finished within the training."""
    sizes = [2**level for level in range(rounds.bit_length())]
    return [(stop - size, stop) for stop in range(1, rounds + 1) for size in sizes if stop % size == 0]


def _decoded(rounds: int, estimate: Callable[[tuple[int, int]], Iterable[tuple[tuple[int, int], float]]]) -> FloatArray:
    """The weights of a tree whose prefix sums add the ``estimate`` of each of the largest nodes that make them up."""
    places = {node: place for place, node in enumerate(_nodes(rounds))}
    decoder = np.zeros((rounds, len(places)))
    for number in range(1, rounds + 1):
        start = 0
        while start < number:
            size = 1 << ((number - start).bit_length() - 1)
            for node, weight in estimate((start, start + size)):
                decoder[number - 1, places[node]] += weight
            start += size
    return decoder


def _tree(rounds: int) -> FloatArray:
    decoder = _decoded(rounds, lambda node: [(node, 1.0)])
    return _differences(decoder[:, decoder.any(axis=0)])


def _honaker(rounds: int) -> FloatArray:
    return _differences(_decoded(rounds, _from_below))


def _from_below(node: tuple[int, int]) -> Iterator[tuple[tuple[int, int], float]]:
    """A node's own noise and its children's estimates, weighted for the smallest variance: levels below count half each
    time, so that the node has the weight 1 / (2 - 2^-levels).
    """
    start, stop = node
    levels, weight = (stop - start).bit_length() - 1, 1.0
    own = 1 / (2 - 2.0**-levels)
    for level in range(levels, -1, -1):
        size = 2**level
        share = weight * own * 0.5 ** (levels - level)
        yield from (((low, low + size), share) for low in range(start, stop, size))


def _inverse(strategy: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(strategy, np.eye(len(strategy)), lower=True), dtype=np.float64)


def _lower(coefficients: FloatArray) -> FloatArray:
    return np.asarray(toeplitz(coefficients, np.zeros_like(coefficients)), dtype=np.float64)


def _root(count: int, *, inverse: bool = False) -> FloatArray:
    """The coefficients of (1 - x)^(-1/2), the square root of the sum; or those of its inverse."""
    power = 0.5 if inverse else -0.5
    factors = [(k - 1 - power) / k for k in range(1, count)]
    return np.asarray(np.cumprod([1.0, *factors]), dtype=np.float64)


def _series_inverse(coefficients: FloatArray) -> FloatArray:
    one = np.zeros_like(coefficients)
    one[0] = 1.0
    return np.asarray(solve_triangular(_lower(coefficients), one, lower=True), dtype=np.float64)


def _bands(coefficients: FloatArray, rounds: int) -> FloatArray:
    return np.pad(coefficients, (0, rounds - len(coefficients)))


def _dense(rounds: int, period: int) -> FloatArray:
    """The factorisation of least error among those whose columns in the rounds of one client are orthogonal and of norm
    1 (Denisov et al. 2022 for one participation, Choquette-Choo et al. 2023 for several): C^T C = R^-1 (R A^T A R)^1/2
    R^-1 with R = V^1/2, where V is zero between rounds of different clients and C^T C is 1 in its place, by a fixed
    point.
    """
    workload, places = _workload(rounds), np.arange(rounds) % period
    together = places[:, None] == places
    duals = np.eye(rounds)
    for _ in range(_STEPS):
        scale = _square_root(duals)
        root = _square_root(scale @ workload @ scale)
        new = np.where(together, root, 0.0)
        moved = float(np.abs(new - duals).max() / np.abs(duals).max())
        duals = new
        if moved < _CLOSE:
            break
    inverse = np.linalg.inv(scale)
    squared = inverse @ root @ inverse
    # A lower triangle of equal C^T C, so that no round waits for draws of later ones: the same covariance.
    flipped = np.linalg.cholesky(squared[::-1, ::-1])
    return _inverse(np.asarray(flipped.T[::-1, ::-1], dtype=np.float64))


def _square_root(matrix: FloatArray) -> FloatArray:
    """The square root of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=np.float64)


def _workload(rounds: int) -> FloatArray:
    """A^T A of the prefix sums A."""
    total = np.tril(np.ones((rounds, rounds)))
    return np.asarray(total.T @ total, dtype=np.float64)


def _banded(rounds: int, bands: int) -> FloatArray:
    """BandMF: the banded strategy of columns of norm 1 with the least error, by L-BFGS from the banded square root.

    Columns that are at least ``bands`` apart are orthogonal: for such participations this error is the smallest.
    """
    workload, places = _workload(rounds), np.arange(rounds)
    apart = places[:, None] - places
    inside = (apart >= 0) & (apart < bands)
    start = _lower(_bands(_root(bands), rounds))

    def of(free: FloatArray) -> tuple[FloatArray, FloatArray]:
        raw = np.zeros((rounds, rounds))
        raw[inside] = free
        return raw, np.linalg.norm(raw, axis=0)

    def error(free: FloatArray) -> tuple[float, FloatArray]:
        raw, norms = of(free)
        strategy = raw / norms
        inverse = _inverse(strategy)
        noise = inverse.T @ workload @ inverse
        slope = -2 * inverse.T @ workload @ inverse @ inverse.T
        slope -= strategy * (strategy * slope).sum(axis=0)
        return float(np.trace(noise)), (slope / norms)[inside]

    found = minimize(error, start[inside], jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxfun": _STEPS})
    raw, norms = of(found.x)
    return _inverse(raw / norms)


def _blt(rounds: int, buffers: int, schema: Participation) -> FloatArray:
    """A strategy with the coefficients 1, and sum_j omega_j theta_j^(k - 1) for k >= 1, whose scales omega and decays
    theta, both in [0, 1], have the least error times sensitivity.
    """
    powers, weights = np.arange(rounds - 1), np.arange(rounds, 0, -1)
    first = np.arange(0, rounds, schema.period) if schema.same else np.arange(rounds)

    def coefficients(free: FloatArray) -> FloatArray:
        scales, decays = free[:buffers], free[buffers:]
        return np.concatenate([[1.0], (scales[:, None] * decays[:, None] ** powers).sum(axis=0)])

    def error(free: FloatArray) -> float:
        series = coefficients(free)
        prefix = np.cumsum(_series_inverse(series))
        # Coefficients that fall: a client that takes part as early and as often as it may moves the releases furthest.
        moved = sum((np.concatenate([np.zeros(start), series[: rounds - start]]) for start in first), np.zeros(rounds))
        return float(np.log(weights @ np.square(prefix)) + np.log(moved @ moved))

    decays = 1 - 2.0 ** -np.arange(1, 2 * buffers, 2)
    start = np.concatenate([np.full(buffers, 0.5 / buffers), decays])
    bounds = [(0.0, 1.0 / buffers)] * buffers + [(0.0, 1.0 - 1e-6)] * buffers
    found = minimize(error, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return _inverse(_lower(coefficients(found.x)))


_WEIGHTS: dict[str, Callable[[int, int, Participation], FloatArray]] = {
    "independent": lambda rounds, bands, schema: np.eye(rounds),
    "tree": lambda rounds, bands, schema: _tree(rounds),
    "honaker": lambda rounds, bands, schema: _honaker(rounds),
    "dense": lambda rounds, bands, schema: _dense(rounds, schema.period if schema.same else rounds),
    "banded": lambda rounds, bands, schema: _banded(rounds, bands),
    "banded_square_root": lambda rounds, bands, schema: _inverse(_lower(_bands(_root(bands), rounds))),
    "square_root": lambda rounds, bands, schema: _inverse(_lower(_root(rounds))),
    "banded_inverse_square_root": lambda rounds, bands, schema: _lower(_bands(_root(bands, inverse=True), rounds)),
    "blt": _blt,
}
