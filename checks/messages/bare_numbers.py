"""Find numbers of a release that sometimes have no noise, where no law is published: values that runs of other noise
repeat bit for bit, and that move with the unit.

Continuous noise hardly ever repeats a number in several runs. A number that is clamped or set to zero after the noise
was added repeats too, and honestly so: its value does not depend on the data. A correct defense fails once in 10^7
checks.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from ...audit.arrays import BoolArray, FloatArray
from ...audit.check_result import CheckResult
from ...audit.claim import Claim
from ..noise.noise_sample import NoiseSample

BARE = "noise in every number of every run"
_CHANCE = 1e-7
"""Chance, at most, that continuous noise repeats any number of a sample so often."""
_SINGLE, _MARGIN = 2.0**-22, 16.0
"""Distance of numbers of single precision as a share of their size, and factor by which values are more likely than it
and the mean over all numbers say.
"""
_DISTINCT, _FEWEST = 0.9, 4
"""Share of distinct numbers among the other runs, so many at least, from which the noise counts as continuous."""
_MOST = 64
"""Repeated numbers that are compared in runs with the unit."""


class _Repeated(NamedTuple):
    """A value that several runs repeat: its row, round and coordinate, the runs, and the value."""

    row: int
    turn: int
    place: int
    runs: BoolArray
    value: float


def bare_checks(
    sample: NoiseSample, claim: Claim, with_unit: Callable[[int], NoiseSample | None]
) -> Iterator[CheckResult]:
    """Check that no value moves with the unit of those that runs repeat; nothing where none is repeated.

    Args:
        with_unit: a sample of equal draws, in which a row moves by a unit, from the number of the row.
    """
    found = list(_repeated(sample))[:_MOST]
    if not found:
        return
    moved = list[tuple[int, str]]()
    for row in sorted({one.row for one in found}):
        other = with_unit(row)
        if other is None or other.values.shape != sample.values.shape:
            continue
        for one in found:
            if one.row == row and _moves(one, other):
                words = f"{sample.row_names[row]}, round {one.turn}, weight {one.place}"
                moved.append((int(one.runs.sum()), words))
    if not moved:
        words = f"{len(found)} numbers repeat a value that no unit moves, as after a clamp"
        yield CheckResult.at_most(BARE, 0.0, claim.delta, unit="share of runs", witness=words)
        return
    count, words = max(moved)
    witness = f"{words}: {count} of {sample.runs} runs have one value, which moves with the unit ({len(moved)} such)"
    yield CheckResult.at_most(BARE, count / sample.runs, claim.delta, unit="share of runs", witness=witness)


def _moves(one: _Repeated, other: NoiseSample) -> bool:
    """Whether the same runs repeat another value with the unit."""
    values = other.values[one.runs, one.row, one.turn, one.place]
    return bool((values == values[0]).all() and abs(values[0] - one.value) > 2 * _SINGLE * abs(one.value))


def _repeated(sample: NoiseSample) -> Iterator[_Repeated]:
    """Values that more runs repeat than noise on a grid of floats does, those of most runs first."""
    runs, values = sample.runs, np.sort(sample.values, axis=0)
    same = values[1:] == values[:-1]
    counts = _longest(same) + 1
    # (numbers) chance that two runs have one value: of the spacing of floats, and as often as all numbers show it
    spread = values[3 * runs // 4] - values[runs // 4]
    step = np.maximum(_SINGLE * np.abs(values).max(axis=0), 2 * sample.rounding[:, None, None])
    common = float(same.mean(axis=0)[counts <= 2].mean()) / runs if (counts <= 2).any() else 1.0
    chance = _MARGIN * np.maximum(step / np.maximum(spread, 1e-300), common)
    # A number that no run moves has no noise at all, which other checks find.
    noisy = (values[-1] > values[0]) & (counts > 2) & (spread > 0)
    expected = _log_repeats(runs, counts, np.minimum(chance, 1.0)) + np.log(max(1, counts.size))
    odd = np.argwhere(noisy & (expected < np.log(_CHANCE)))
    for row, turn, place in sorted(odd.tolist(), key=lambda where: -counts[tuple(where)]):
        numbers = sample.values[:, row, turn, place]
        seen, often = np.unique(numbers, return_counts=True)
        most = int(often.argmax())
        rest = runs - int(often[most])
        # Coins take few values, which the unit may move in all runs of some draws.
        if rest >= _FEWEST and len(seen) - 1 >= _DISTINCT * rest:
            yield _Repeated(row, turn, place, numbers == seen[most], float(seen[most]))


def _longest(same: BoolArray) -> FloatArray:
    """The length of the longest sequence of true values along the first axis."""
    length, longest = np.zeros(same.shape[1:]), np.zeros(same.shape[1:])
    for here in same:
        length = np.where(here, length + 1, 0)
        longest = np.maximum(longest, length)
    return longest


def _log_repeats(runs: int, counts: FloatArray, chance: FloatArray) -> FloatArray:
    """The logarithm of a bound on the chance that so many of the runs have one value: choices times chance each."""
    choices = gammaln(runs + 1) - gammaln(counts + 1) - gammaln(np.maximum(runs - counts, 0) + 1)
    return np.asarray(choices + (counts - 1) * np.log(np.maximum(chance, 1e-300)))
