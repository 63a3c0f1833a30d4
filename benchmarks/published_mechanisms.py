"""The twenty mechanisms of DP-Sniper's evaluation, with its input patterns and the bounds that its logs print.

Written from the papers' descriptions: report noisy max and noisy histograms (Ding et al. 2018, algorithms 5 to 10),
sparse vector technique (Lyu, Su, Li 2017, algorithms 1 to 6), numerical sparse vector and prefix sum (Wang et al.
2019), truncated geometric (Balcer and Vadhan 2018, algorithm 4.8), RAPPOR (Erlingsson, Pihur, Korolova 2014, steps 1
to 3). Parameters, input patterns (those of StatDP) and bounds: Bichsel et al. 2021, "DP-Sniper".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Batch = np.ndarray
EPSILON = 0.1
FALSE, ABORTED = -1000.0, -2000.0


@dataclass(frozen=True, kw_only=True)
class Published:
    """One mechanism, its pairs of inputs, its true epsilon (None where it is infinite or not known in closed form), and
    the bounds of DP-Sniper at confidence .9: of its search, from 10.7 million trials, and its last, from 200 million,
    each the larger of its two classifiers.
    """

    name: str
    call: Callable[[Any, np.random.Generator], Any]
    pairs: list[tuple[np.ndarray, np.ndarray]]
    epsilon: float | None
    search: float
    last: float


def patterns(size: int, whole: bool, low: int = -10, high: int = 10) -> list[tuple[np.ndarray, np.ndarray]]:
    """The patterns of StatDP; ``whole``: every entry may differ by one, otherwise one entry only."""
    half, ones = size // 2, [1] * size
    found = [(ones, [0] + [1] * (size - 1)), (ones, [2] + [1] * (size - 1))]
    if whole:
        found += [
            (ones, [2] + [0] * (size - 1)),
            (ones, [0] + [2] * (size - 1)),
            (ones, [2] * half + [0] * (size - half)),
            (ones, [2] * size),
            (ones, [0] * size),
            ([1] * half + [0] * (size - half), [0] * half + [1] * (size - half)),
        ]
    return [
        (np.clip(np.array(a, dtype=float), low, high), np.clip(np.array(b, dtype=float), low, high)) for a, b in found
    ]


def laplace(x: Batch, rng: np.random.Generator, scale: float = 1 / EPSILON) -> Batch:
    return x + rng.laplace(scale=scale, size=x.shape)


def truncated_geometric(x: Batch, rng: np.random.Generator, n: int = 5) -> Batch:
    """GeoSample: inverts a distribution function over 0..n whose values are whole numbers."""
    k, count = math.ceil(math.log(2 / EPSILON)), int(x[0, 0])
    base, step = 2**k, 2**k + 1
    total = (2 * base + 1) * step ** (n - 1)
    below = [base ** (count - z) * step ** (n - count + z) for z in range(count)]
    above = [total - base ** (z - count + 1) * step ** (n - 1 - z + count) for z in range(count, n)]
    return np.searchsorted(np.array([*below, *above, total]), rng.integers(1, total + 1, size=len(x)))


def noisy_max(noise: str, value: bool) -> Callable[[Batch, np.random.Generator], Batch]:
    """The index of the largest noisy entry, or its value."""

    def mechanism(x: Batch, rng: np.random.Generator) -> Batch:
        noisy = x + getattr(rng, noise)(scale=2 / EPSILON, size=x.shape)
        return noisy.max(axis=1) if value else noisy.argmax(axis=1)

    return mechanism


def _until(above: Batch, shown: Batch, most: int, ended: float) -> Batch:
    """``shown`` up to the ``most``-th entry that is above the threshold, and ``ended`` from there on."""
    done = np.cumsum(above, axis=1) - above >= most
    return np.where(done, ended, shown)


def svt(
    *, share: float = 0.5, query: float, most: int | None, value: bool = False, level: float = 1.0
) -> Callable[[Batch, np.random.Generator], Batch]:
    """Sparse vector technique: noise of scale 1 / (share * epsilon) on the threshold, ``query`` / (rest of epsilon)
    on each query; stops after ``most`` answers above.
    """
    first, rest = share * EPSILON, (1 - share) * EPSILON

    def mechanism(x: Batch, rng: np.random.Generator) -> Batch:
        threshold = level + rng.laplace(scale=1 / first, size=(len(x), 1))
        noisy = x + (rng.laplace(scale=query / rest, size=x.shape) if query else 0.0)
        above = noisy >= threshold
        shown = np.where(above, noisy, FALSE) if value else above.astype(float)
        return shown if most is None else _until(above, shown, most, ABORTED if value else -1.0)

    return mechanism


def svt2(x: Batch, rng: np.random.Generator, most: int = 1) -> Batch:
    """Algorithm 2: a new threshold after each answer above."""
    share, size = EPSILON / 2, (len(x), x.shape[1] + 1)
    noisy = x + rng.laplace(scale=2 * most / share, size=x.shape)
    fresh = 1.0 + rng.laplace(scale=most / share, size=size)
    threshold, above = fresh[:, 0], np.zeros(x.shape, dtype=bool)
    for column in range(x.shape[1]):
        above[:, column] = noisy[:, column] >= threshold
        threshold = np.where(above[:, column], fresh[:, column + 1], threshold)
    return _until(above, above.astype(float), most, -1.0)


def numerical_svt(x: Batch, rng: np.random.Generator, most: int = 2) -> Batch:
    threshold = 1.0 + rng.laplace(scale=3 / EPSILON, size=(len(x), 1))
    above = x + rng.laplace(scale=6 * most / EPSILON, size=x.shape) >= threshold
    values = x + rng.laplace(scale=3 * most / EPSILON, size=x.shape)
    return _until(above, np.where(above, values, 0.0), most, -1000.0)


def svt34(x: Batch, rng: np.random.Generator) -> Batch:
    third, fourth = svt(query=2.0, most=2, value=True), svt(share=0.25, query=1.0, most=2)
    return np.concatenate([third(x, rng), fourth(x, rng)], axis=1)


def laplace_parallel(x: Batch, rng: np.random.Generator) -> Batch:
    return x + rng.laplace(scale=200, size=(len(x), 20))


def prefix_sum(x: Batch, rng: np.random.Generator) -> Batch:
    return np.cumsum(laplace(x, rng), axis=1)


def murmur3(data: bytes, seed: int) -> int:
    """The 32-bit hash MurmurHash3 (Appleby 2011), signed; for texts of fewer than four bytes."""
    part = int.from_bytes(data, "little") * 0xCC9E2D51 & 0xFFFFFFFF
    part = (part << 15 | part >> 17) & 0xFFFFFFFF
    h = seed ^ (part * 0x1B873593 & 0xFFFFFFFF) ^ len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (h >> 31 << 32)


def rappor(f: float, p: float = 0.0, q: float = 1.0) -> Callable[[Batch, np.random.Generator], Batch]:
    """A Bloom filter of 20 bits and 4 hashes, with permanent randomised response at rate ``f``, then instantaneous
    randomised response.
    """

    def mechanism(x: Batch, rng: np.random.Generator) -> Batch:
        bits = np.zeros(20, dtype=bool)
        bits[[murmur3(str(int(x[0, 0])).encode(), seed) % 20 for seed in range(4)]] = True
        coin = rng.random((len(x), 20))
        kept = np.where(coin < f / 2, True, np.where(coin < f, False, bits))
        return (rng.random(kept.shape) < np.where(kept, q, p)).astype(float)

    return mechanism


_ONE, _FIVE, _TEN = patterns(1, False), patterns(5, True), patterns(10, True)
_COUNT = patterns(5, False, 0, 10)
MECHANISMS = [
    Published(name="Laplace", call=laplace, pairs=_ONE, epsilon=0.1, search=0.0918, last=0.0976),
    Published(
        name="TruncatedGeometric",
        call=truncated_geometric,
        pairs=patterns(1, False, 0, 5),
        epsilon=math.log(1 + 2**-3),
        search=0.1088,
        last=0.1156,
    ),
    Published(name="NoisyHist1", call=laplace, pairs=_COUNT, epsilon=0.1, search=0.0955, last=0.0978),
    Published(
        name="NoisyHist2",
        call=lambda x, rng: laplace(x, rng, scale=EPSILON),
        pairs=_COUNT,
        epsilon=10.0,
        search=4.602,
        last=4.602,
    ),
    Published(
        name="ReportNoisyMax1", call=noisy_max("laplace", False), pairs=_FIVE, epsilon=0.1, search=0.0853, last=0.0925
    ),
    Published(
        name="ReportNoisyMax2",
        call=noisy_max("exponential", False),
        pairs=_FIVE,
        epsilon=0.1,
        search=0.0914,
        last=0.0979,
    ),
    Published(
        name="ReportNoisyMax3", call=noisy_max("laplace", True), pairs=_FIVE, epsilon=0.25, search=0.2495, last=0.2488
    ),
    Published(
        name="ReportNoisyMax4",
        call=noisy_max("exponential", True),
        pairs=_FIVE,
        epsilon=None,
        search=0.3463,
        last=0.3534,
    ),
    Published(name="SVT1", call=svt(query=2.0, most=1, level=0.5), pairs=_TEN, epsilon=0.1, search=0.0772, last=0.0858),
    Published(name="SVT2", call=svt2, pairs=_TEN, epsilon=0.1, search=0.0793, last=0.0859),
    Published(
        name="SVT3", call=svt(query=1.0, most=1, value=True), pairs=_TEN, epsilon=None, search=0.1806, last=0.1822
    ),
    Published(
        name="SVT4", call=svt(share=0.25, query=1.0, most=1), pairs=_TEN, epsilon=0.175, search=0.1666, last=0.1696
    ),
    Published(name="SVT5", call=svt(query=0.0, most=None), pairs=_TEN, epsilon=None, search=1.757, last=1.761),
    Published(name="SVT6", call=svt(query=1.0, most=None), pairs=_TEN, epsilon=None, search=0.2693, last=0.2720),
    Published(
        name="RAPPOR",
        call=rappor(0.75, 0.45, 0.55),
        pairs=_ONE,
        epsilon=6 * math.log(41 / 39),
        search=0.2924,
        last=0.3008,
    ),
    Published(
        name="OneTimeRAPPOR", call=rappor(0.95), pairs=_ONE, epsilon=6 * math.log(21 / 19), search=0.5970, last=0.5999
    ),
    Published(name="LaplaceParallel", call=laplace_parallel, pairs=_ONE, epsilon=0.1, search=0.0287, last=0.0350),
    Published(name="SVT34Parallel", call=svt34, pairs=_TEN, epsilon=None, search=0.2599, last=0.2616),
    Published(name="PrefixSum", call=prefix_sum, pairs=_TEN, epsilon=1.0, search=0.5716, last=0.5774),
    Published(name="NumericalSVT", call=numerical_svt, pairs=_TEN, epsilon=0.1, search=0.0271, last=0.0345),
]
