"""Bound the epsilon of composed releases from below, so that rounding can never make the bound larger than the true
epsilon.

The accountants of this folder bound privacy losses from above, for claims. A check that holds a claim against something
needs the opposite. Here a release is reduced to finitely many outcomes, which is post-processing, and each outcome's
privacy loss is rounded down; both can only lower the hockey-stick divergence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from ...audit.arrays import FloatArray
from .pld import convolved, gaussian_cells, gaussian_masses

_CUT_OFF = 1e-13
"""Mass of the composed losses that may be left out at each end, and the error of a Fourier transform."""
LEAST_DELTA = 1e-11
"""Delta from which a composed bound exceeds the errors of the transforms."""
_BIAS = 2e-3
"""Loss, as a share of ``reach``, by which rounding lowers the losses of all releases together on average."""
_LONGEST = 2**18
_CELLS, _TAIL, _STEEPEST = 20_000, 9.0, 25.0


@dataclass(frozen=True, eq=False)
class LossPair:
    """The probabilities of the outcomes of one release under two neighbouring inputs: two arrays ``(k,)`` whose sums
    are at most 1.

    ``releases`` independent releases are made. A release is made with probability ``share`` only, and the observer sees
    whether it was made.
    """

    one: FloatArray
    other: FloatArray
    releases: int = 1
    share: float = 1.0

    def swapped(self) -> "LossPair":
        """Return the pair of losses with the roles of the two inputs exchanged."""
        return LossPair(self.other, self.one, self.releases, self.share)


@dataclass(frozen=True, eq=False)
class Losses:
    """A distribution of privacy losses: ``losses (k,)`` ascending with their ``masses (k,)``, and the mass of an
    infinite loss.
    """

    losses: FloatArray
    masses: FloatArray
    infinite: float

    @property
    def pair(self) -> LossPair:
        """Return a pair of outcome distributions with these privacy losses; an outcome of infinite loss has probability
        0 under the other input.
        """
        return LossPair(
            np.append(self.masses, self.infinite), np.append(self.masses * np.exp(np.minimum(-self.losses, 700.0)), 0.0)
        )

    def delta(self, epsilon: float) -> float:
        """Return a lower bound on delta at ``epsilon`` >= 0."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        return float(self.masses[first:] @ -np.expm1(epsilon - self.losses[first:])) + self.infinite

    def epsilon(self, delta: float) -> float:
        """Return a lower bound on epsilon at ``delta``; infinite if the mass of infinite losses alone exceeds
        ``delta``.
        """
        excess = delta + LEAST_DELTA - self.infinite
        if excess < 0:
            return math.inf
        positive = self.losses > 0
        losses, masses = self.losses[positive], self.masses[positive]
        above = np.cumsum(masses[::-1])[::-1]
        discounted = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
        # Delta at each loss falls; the last one at which it is still too large is a lower bound.
        at = above - np.exp(np.minimum(losses, 700.0)) * discounted
        place = int(np.count_nonzero(at > excess))
        return float(losses[place - 1]) if place else 0.0


def composed(pairs: Sequence[LossPair], *, reach: float) -> Losses:
    """Return the privacy losses of the composition of all releases of all ``pairs``, rounded down.

    Args:
        reach: the epsilon to which the result is compared; the losses are rounded to a small share of it.
    """
    releases = sum(pair.releases for pair in pairs)
    step = 2 * _BIAS * max(reach, 1e-3) / releases
    # A grid that is too long is made coarser, which lowers the bound and so stays valid.
    step = max(step, max(_width(pair) for pair in pairs) / _LONGEST)
    rounded = [_rounded(pair, step) for pair in pairs]
    lowest, total = convolved([(one[1], pair.releases) for one, pair in zip(rounded, pairs, strict=True)], _CUT_OFF)
    lowest += sum(one[0] * pair.releases for one, pair in zip(rounded, pairs, strict=True))
    sure = math.prod((1 - one[2]) ** pair.releases for one, pair in zip(rounded, pairs, strict=True))
    losses = step * (lowest + np.arange(len(total), dtype=np.float64))
    return Losses(losses, np.maximum(total, 0.0), 1 - sure)


def gaussian_pair(
    shift: float, *, rate: float = 1.0, steps: int = 1, hidden: float = 1.0, replaced: bool = False
) -> LossPair:
    """Return the probabilities of the cells of one Gaussian release, in units of its noise, with and without one row.

    Args:
        shift: distance by which the row moves the release in each step that it is sampled into, at probability
            ``rate`` for each of ``steps``.
        hidden: probability that the row takes part in the release at all, which the observer does not see.
        replaced: whether the other input holds the opposite row instead of none.
    """
    # A smaller shift is more noise, which is post-processing: far beyond every claim it changes nothing.
    moved = min(abs(shift), _STEEPEST / steps / (2 if replaced else 1))
    counts = np.arange(steps + 1)
    chances = hidden * binom.pmf(counts, steps, rate) + (1 - hidden) * (counts == 0)
    likely = chances > 1e-18
    centres, weights = moved * counts[likely], np.log(chances[likely])
    low = -_TAIL - (centres[-1] if replaced else 0.0)
    edges = np.linspace(low, centres[-1] + _TAIL, _CELLS)
    # The outermost cells reach to infinity, so that no outcome is left out.
    edges[0], edges[-1] = -np.inf, np.inf
    one = gaussian_masses(edges, centres, weights)
    other = gaussian_masses(edges, -centres, weights) if replaced else np.exp(gaussian_cells(edges))
    return LossPair(one, other)


def _width(pair: LossPair) -> float:
    masses, losses = _log_ratio(pair)
    first, last = _window(masses, losses)
    return float(last - first)


def _log_ratio(pair: LossPair) -> tuple[FloatArray, FloatArray]:
    """The masses of the outcomes that both inputs can produce, and their losses."""
    both = (pair.one > 1e-300) & (pair.other > 1e-300)
    return pair.one[both], np.log(pair.one[both]) - np.log(pair.other[both])


def _rounded(pair: LossPair, step: float) -> tuple[int, FloatArray, float]:
    """The first place on the grid of losses, the masses from there on, and the mass of an infinite loss."""
    masses, losses = _log_ratio(pair)
    infinite = float(pair.one[(pair.one > 1e-300) & (pair.other <= 0)].sum())
    places = np.floor(losses / step)
    # A round without the release has a loss of zero.
    masses, places = np.append(pair.share * masses, 1 - pair.share), np.append(places, 0)
    # Far tails would make the grid long; leaving out what they hold lowers delta.
    first, last = (int(place) for place in _window(masses, places))
    kept = (places >= first) & (places <= last)
    spread = np.bincount((places[kept] - first).astype(np.int64), masses[kept], last - first + 1)
    return first, np.asarray(spread, dtype=np.float64), pair.share * infinite


def _window(masses: FloatArray, losses: FloatArray) -> tuple[float, float]:
    """The lowest and the highest loss beyond which hardly any mass lies; zero is between them."""
    order = np.argsort(losses, kind="stable")
    below = np.cumsum(masses[order])
    above = np.cumsum(masses[order][::-1])[::-1]
    inner = losses[order][(below > _CUT_OFF) & (above > _CUT_OFF)]
    return float(inner.min(initial=0.0)), float(inner.max(initial=0.0))
