"""Look for noise that two rows share at different positions: overlapping parts of one table, or a repeated pattern.

A regression on equal positions does not see it. Within each run every noise vector is compared with every other one,
and with itself, at all lags, forwards and backwards: where a number is explained by another vector's, less is left than
the law states.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.stats import chi2

from ...audit.arrays import FloatArray
from ..false_alarms import Shortfall, least_scale, level

_LEAST = 32
"""Numbers that two vectors must have in common, at least."""
_VECTORS, _NUMBERS = 24, 2**22
"""Vectors of a run that are compared with each other, and numbers of all lags of all pairs, at most."""
_LONGEST = 2**14
"""Weights that are compared, at most."""
_CHUNK = 2**20
"""Numbers of all lags that are computed at once."""


class Columns(NamedTuple):
    """Noise of runs, ``(runs, k, d)`` in standard deviations of the law, with the row and the round of each column."""

    noise: FloatArray
    rows: Sequence[int]
    rounds: Sequence[int]


def lagged_noise(columns: Columns, names: Sequence[str], slack: float) -> Iterator[tuple[str, Shortfall]]:
    """Return what is left of noise given a vector at another lag: of one vector, two rows, and two rounds, each with
    the kind: ``itself``, ``rows`` or ``rounds``.

    Sums of squares that a regression on one other vector leaves are chi-squared, whatever the other vector holds. Parts
    of one vector are compared in blocks that do not overlap.

    Args:
        names: of the rows.
        slack: rounding of the released values, in standard deviations of the law.
    """
    noise = columns.noise[..., :_LONGEST]
    dim = noise.shape[-1]
    count = min(noise.shape[1], _VECTORS)
    if dim <= _LEAST:
        return
    every = [(one, other) for one in range(count) for other in range(one + 1)]
    kinds = {
        "itself": [pair for pair in every if pair[0] == pair[1]],
        "rows": [(a, b) for a, b in every if columns.rows[a] != columns.rows[b]],
        "rounds": [(a, b) for a, b in every if a != b and columns.rows[a] == columns.rows[b]],
    }
    for kind, pairs in kinds.items():
        most = max(1, _NUMBERS // (3 * 4 * dim))
        runs = min(len(noise), max(1, most // max(1, len(pairs))))
        if not pairs:
            continue
        found = [
            one
            for backwards in ((False,) if kind == "itself" else (False, True))
            for one in _best(noise[:runs], pairs[:most], backwards)
        ]
        tests = len(found) * 2 * dim
        squares, degrees = (np.array([getattr(one, name) for one in found]) for name in ("squares", "degrees"))
        words = [_words(columns, names, one) for one in found]
        yield kind, least_scale(squares, degrees, words, tests=tests, slack=slack)[0]


class _Left(NamedTuple):
    """What is left of a vector given another one at a lag: of ``degrees`` of freedom."""

    squares: float
    degrees: float
    pair: tuple[int, int]
    lag: int
    backwards: bool


def _words(columns: Columns, names: Sequence[str], left: _Left) -> str:
    one, other = (f"{names[columns.rows[place]]}, round {columns.rounds[place]}" for place in left.pair)
    way = " backwards" if left.backwards else ""
    return f"{one}, given {'itself' if one == other else other}{way} at a distance of {left.lag} weights"


def _best(noise: FloatArray, pairs: list[tuple[int, int]], backwards: bool) -> Iterator[_Left]:
    """The lag of each pair and run that explains the most."""
    dim = noise.shape[-1]
    lags = np.arange(-(dim - _LEAST), dim - _LEAST + 1)
    # A vector lies on itself at lag 0.
    lags = lags[lags > 0] if pairs[0][0] == pairs[0][1] else lags
    overlap = dim - np.abs(lags)
    allowed = chi2.ppf(level(len(pairs) * len(noise) * 2 * dim), np.arange(dim + 1).clip(2) - 1)[overlap]
    size, step = next_fast_len(2 * dim, real=True), max(1, _CHUNK // (4 * dim))
    chosen = [(run, *pair) for run in range(len(noise)) for pair in pairs]
    for start in range(0, len(chosen), step):
        part = np.array(chosen[start : start + step])
        one, other = noise[part[:, 0], part[:, 1]], noise[part[:, 0], part[:, 2]]
        other = other[:, ::-1] if backwards else other
        product = irfft(rfft(one, size) * np.conj(rfft(other, size)), size)[:, lags % size]
        squares = [np.concatenate([np.zeros((len(part), 1)), np.cumsum(v**2, axis=1)], axis=1) for v in (one, other)]
        # Numbers of ``one`` from ``lag`` on lie on those of ``other`` from 0 on.
        low, high = np.maximum(lags, 0), np.minimum(dim + lags, dim)
        own = squares[0][:, high] - squares[0][:, low]
        given = squares[1][:, high - lags] - squares[1][:, low - lags]
        share = (own - product**2 / np.maximum(given, 1e-300)) / np.maximum(allowed, 1e-300)
        best = share.argmin(1)
        for number, (_, first, second) in enumerate(part.tolist()):
            lag = int(lags[best[number]])
            if first == second:
                left, degrees = _of_itself(one[number], lag)
            else:
                left, degrees = float(share[number, best[number]] * allowed[best[number]]), overlap[best[number]] - 1.0
            yield _Left(max(0.0, left), float(degrees), (first, second), lag, backwards)


def _of_itself(vector: FloatArray, lag: int) -> tuple[float, float]:
    """What is left of every second block of ``lag`` numbers given the blocks between them, and its degrees."""
    places = np.arange(len(vector) - lag)
    places = places[places // lag % 2 == 0]
    one, other = vector[places], vector[places + lag]
    return float(one @ one - (one @ other) ** 2 / max(float(other @ other), 1e-300)), max(0.0, len(places) - 1.0)
