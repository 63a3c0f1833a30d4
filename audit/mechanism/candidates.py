"""Candidate scores for a mechanism's outputs, learnt on pilot trials.

No single model suits all mechanisms: tables of the whole output for few outputs, sums of marginal ratios for products,
conditional ones for sequences with flags, logistic regression for the rest, and values that repeat.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..estimators.hockey_stick import Classifier, fit
from .columns import (
    SUMMARIES,
    Columns,
    cells_of,
    coordinates,
    difference,
    finite,
    numbers,
    product,
    standardised,
    steps,
    summaries,
    summary,
)
from .scores import (
    GRIDS,
    Marginals,
    RowScore,
    Score,
    learn_chain,
    learn_low_bits,
    learn_marginals,
    learn_repeats,
    tabulate,
    value,
)

# Newton's method solves a system in the features; beyond 200 it overfits a pilot and takes long.
_MOST_FEATURES = 200
# Of more coordinates, those that differ most are looked at more closely.
_MOST_COORDINATES, _CHOSEN = 40, 16
_MOST_PAIRED, _MOST_ROUNDED = 24, 4
_MULTIPLIED, _MOST_MULTIPLIED, _MOST_OF_THREE = 20_000, 1024, 64
"""Trials per input, and coordinates, of which products of two and of three are compared."""
# With so many trials per output, no other score can order the outputs better than their table.
_CLEAR = 1000
_FITTED, _MOST_FITTED, _KEPT = 12_000_000, 400_000, 100_000
"""The most numbers and trials per input for logistic regression, and the most trials for values that repeat."""


def candidates(
    member: NDArray[Any], nonmember: NDArray[Any], inputs: tuple[Any, Any], *, thorough: bool, low_bits: bool
) -> Iterator[Score]:
    """Yield candidate scores for an audit, learned on pilot outputs (n, ...) of the second and of the first input.

    ``inputs``: of arm 0 and 1; their difference is tried as a direction where it has the shape of an output.
    ``thorough``: whether the slow ones are learnt too. ``low_bits``: whether the only score is that of the lowest bits,
    which no other candidate looks at.

    Raises ValueError for strings of too many different values, for NaN alone, and for low bits of other numbers than
    floating-point ones.
    """
    if low_bits:
        if member.dtype.kind != "f":
            raise ValueError(f"low bits need floating-point outputs, got {member.dtype}")
        yield learn_low_bits(numbers(member), numbers(nonmember))
        return
    if member.dtype.kind == "f" and np.isnan(member).all() and np.isnan(nonmember).all():
        raise ValueError("outputs must hold numbers, got only NaN on both inputs")
    table = tabulate(member, nonmember)
    if table is not None:
        yield table
    if member.dtype.kind in "US":
        if table is None:
            raise ValueError(
                "outputs are strings with too many different values to learn a score from pilot trials: pass a "
                "score function"
            )
        return
    try:
        rows_in, rows_out = numbers(member), numbers(nonmember)
    except ValueError:
        # Whole numbers that no float holds have a table or nothing.
        if table is None:
            raise
        return
    if table is not None and (rows_in.shape[1] == 1 or len(rows_in) >= _CLEAR * len(table.keys)):
        return
    yield from _of_numbers(rows_in, rows_out, thorough=thorough)
    if (shift := _shift(inputs, member.shape[1:])) is not None:
        yield _projection(shift, "x1 - x0")


def _of_numbers(member: FloatArray, nonmember: FloatArray, *, thorough: bool) -> Iterator[Score]:
    width, chosen = member.shape[1], None
    yield from _repeats(member, nonmember, _KEPT if thorough else _KEPT // 4)
    if width == 1:
        yield from (value(coordinates(), sign) for sign in (1, -1))
        yield from (learn_marginals(member, nonmember, coordinates(), bins) for bins in (16, 64, 1024))
        yield _logistic(member, nonmember)
        return
    if width > _MOST_COORDINATES:
        yield _projection(finite(member).mean(axis=0) - finite(nonmember).mean(axis=0), "the difference of the means")
        chosen = _most_different(member, nonmember)
        yield from _single(member, nonmember, coordinates(chosen[:1]))
    few = coordinates(chosen)
    views = [few, steps()] if chosen is None else [few]
    yield from _single(member, nonmember, summary("sum"))
    for columns in views:
        yield learn_marginals(member, nonmember, columns, 8, alike=True)
        yield from (learn_marginals(member, nonmember, columns, bins) for bins in ((2, 8, 64) if thorough else (8,)))
    yield learn_chain(member, nonmember, few, 8)
    if thorough:
        yield from _structure(member, nonmember, chosen)
        if 2 * width <= _MOST_FEATURES:
            yield _logistic(member, nonmember)
        for columns in views:
            yield from _logistic_cells(member, nonmember, columns)


def _repeats(member: FloatArray, nonmember: FloatArray, rows: int) -> Iterator[Score]:
    member, nonmember = member[:rows], nonmember[:rows]
    for places in GRIDS if member.shape[1] <= _MOST_ROUNDED else GRIDS[:1]:
        if (found := learn_repeats(member, nonmember, places, together=False)) is not None:
            yield found
    if (found := learn_repeats(member, nonmember, 0, together=True)) is not None:
        yield found


def _logistic_cells(member: FloatArray, nonmember: FloatArray, columns: Columns) -> Iterator[Score]:
    for bins in (4, 2):
        marginals = learn_marginals(member, nonmember, columns, bins)
        if sum(cells.size for cells in marginals.cells) <= _MOST_FEATURES:
            few = _fitted(sum(cells.size for cells in marginals.cells))
            sides = [_indicators(side[:few], marginals) for side in (member, nonmember)]
            yield _of_cells(marginals, fit(*sides, squares=False))
            return


def _of_cells(marginals: Marginals, model: Classifier) -> RowScore:
    """The score of a model of the cells into which the columns of ``marginals`` fall: like these, and right for columns
    that depend on each other.
    """
    # What an indicator of 1 adds to the log-odds, standardised and cut as when it was fitted.
    one, zero = (np.clip((indicator - model.centre) / model.spread, -10, 10) for indicator in (1.0, 0.0))
    weights = model.weights[1:] * (one - zero)

    def of(rows: FloatArray) -> FloatArray:
        total, at = np.zeros(len(rows)), 0
        # A sum of table entries is the product with the indicators, without building these.
        for column, cells in zip(marginals.columns.of(rows).T, marginals.cells, strict=True):
            total += weights[at : at + cells.size][cells.of(column)]
            at += cells.size
        return total

    return RowScore(f"logistic regression on {marginals.bins} bins of {marginals.columns}", of)


def _logistic(member: FloatArray, nonmember: FloatArray) -> RowScore:
    """The score by logistic regression on coordinates and their squares, as in ``hockey_stick``."""
    few = _fitted(2 * member.shape[1])
    model = fit(finite(member[:few]), finite(nonmember[:few]))
    return RowScore("logistic regression on the coordinates and their squares", lambda rows: model.score(finite(rows)))


def _fitted(features: int) -> int:
    return min(_MOST_FITTED, _FITTED // features)


def _indicators(rows: FloatArray, marginals: Marginals) -> FloatArray:
    found = marginals.columns.of(rows)
    return np.concatenate(
        [np.eye(cells.size)[cells.of(column)] for column, cells in zip(found.T, marginals.cells, strict=True)], axis=1
    )


def _structure(member: FloatArray, nonmember: FloatArray, chosen: IntArray | None) -> Iterator[Score]:
    """The summary and the difference of two coordinates that tell the inputs apart best."""
    gains = [_evidence(*both) for both in zip(summaries(member).T, summaries(nonmember).T, strict=True)]
    yield from _single(member, nonmember, summary(SUMMARIES[int(np.argmax(gains))]))
    gains = [_evidence(*both) for both in zip(member.T, nonmember.T, strict=True)]
    yield from _single(member, nonmember, coordinates(np.array([int(np.argmax(gains))])))
    if chosen is None:
        width = member.shape[1]
        chosen = np.arange(width) if width <= _MOST_PAIRED else _most_different(member, nonmember)
    pairs = [difference(int(first), int(second)) for first, second in combinations(chosen, 2)]
    gains = [_evidence(pair.of(member)[:, 0], pair.of(nonmember)[:, 0]) for pair in pairs]
    yield from _single(member, nonmember, pairs[int(np.argmax(gains))])
    for several in _products(member, nonmember):
        yield from _single(member, nonmember, several)


def _products(member: FloatArray, nonmember: FloatArray) -> Iterator[Columns]:
    """The product of two coordinates, and of three of not too many, whose mean differs most between the inputs."""
    width = member.shape[1]
    if width > _MOST_MULTIPLIED:
        return
    rows = min(len(member), _MULTIPLIED)
    both = np.concatenate([finite(member[:rows]), finite(nonmember[:rows])])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    inside, outside = (standardised(side, centre, spread) for side in (both[:rows], both[rows:]))

    def best(places: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """The largest difference of means of products of these coordinates and two later ones."""
        sides = [side[:, places].prod(axis=1, keepdims=True) * side if places else side for side in (inside, outside)]
        means = sides[0].T @ inside - sides[1].T @ outside
        gaps = np.triu(np.abs(means), 1)
        if places:
            gaps[: places[-1] + 1] = 0.0
        first, second = np.unravel_index(int(gaps.argmax()), gaps.shape)
        return float(gaps[first, second]), (*places, int(first), int(second))

    found = [best(())[1]]
    if 3 <= width <= _MOST_OF_THREE:
        found.append(max(best((place,)) for place in range(width - 2))[1])
    for places in found:
        chosen = np.array(places)
        yield product(chosen, centre[chosen], spread[chosen])


def _single(member: FloatArray, nonmember: FloatArray, columns: Columns) -> Iterator[Score]:
    yield from (value(columns, sign) for sign in (1, -1))
    yield learn_marginals(member, nonmember, columns, 16)


def _evidence(member: FloatArray, nonmember: FloatArray, rows: int = 20_000) -> float:
    """How clearly one column differs: the chi-squared statistic over its cells, less its mean under equal laws."""
    sides = member[:rows], nonmember[:rows]
    cells = cells_of(np.concatenate(sides), 8)
    inside, outside = (np.bincount(cells.of(side), minlength=cells.size) for side in sides)
    total = inside + outside
    return float(((inside - outside) ** 2 / np.maximum(total, 1)).sum() - np.count_nonzero(total))


def _most_different(member: FloatArray, nonmember: FloatArray) -> IntArray:
    """The coordinates that differ most between the inputs, in mean, in size or in how often they have one value."""
    known = finite(member), finite(nonmember)
    centre, spread = np.median(np.concatenate(known), axis=0), np.abs(np.concatenate(known)).mean(axis=0) + 1e-300
    gains = np.zeros(member.shape[1])
    for feature in (
        lambda rows: np.clip((rows - centre) / spread, -3, 3),
        lambda rows: np.minimum(np.abs(rows - centre) / spread, 10),
        lambda rows: (rows == centre).astype(float),
    ):
        inside, outside = map(feature, known)
        error = np.sqrt((inside.var(axis=0) + outside.var(axis=0)) / len(inside)) + 1e-12
        gains = np.maximum(gains, np.abs(inside.mean(axis=0) - outside.mean(axis=0)) / error)
    return np.asarray(np.argsort(-gains, kind="stable")[:_CHOSEN], dtype=np.int64)


def _shift(inputs: tuple[Any, Any], shape: tuple[int, ...]) -> FloatArray | None:
    try:
        arrays = [np.asarray(x) for x in inputs]
    except ValueError:
        return None
    if any(array.dtype.kind not in "biuf" or array.shape != shape for array in arrays):
        return None
    shift = arrays[1].astype(np.float64) - arrays[0]
    return shift.reshape(-1) if np.isfinite(shift).all() and shift.any() else None


def _projection(direction: FloatArray, name: str) -> RowScore:
    """The score that projects outputs on a ``direction``; it is optimal for isotropic Gaussian noise."""
    # Scaled to 1, so that products with large outputs do not overflow.
    largest = float(np.abs(direction).max())
    scaled = direction / largest if largest > 0 else direction
    return RowScore(f"projection on {name}", lambda rows: finite(rows) @ scaled)
