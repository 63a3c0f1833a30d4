"""Published values of many draws as vectors, reduced to the numbers that distinguish two data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audit.arrays import FloatArray
from ..fl.preparation import Leaves

_COLUMNS, _TEXTS = 48, 16
"""Numbers and texts that are kept of what is published."""


def first_difference(one: Leaves, other: Leaves, among: set[str]) -> str:
    """Return the name of the first value that differs or is missing on one side, ``among`` these names; empty if there
    is none.
    """
    names = [name for name in {**one, **other} if name in among or name not in one or name not in other]
    return next((name for name in names if not equal_values(one.get(name), other.get(name))), "")


def equal_values(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Return whether two published values are equal in shape, type and every number or text; None stands for a missing
    value.
    """
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype.kind == other.dtype.kind and bool((one == other).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedVector:
    """Published values as one vector of numbers, of which the numbers that differ most are kept.

    Args:
        widths: numbers of each value, at most; ``texts``: texts that occurred, by value and place.
        spread: noise of each number; ``chosen``: the numbers that are kept; ``weights``: along which all are summed.
    """

    widths: Mapping[str, int]
    texts: tuple[tuple[str, int, str], ...] = ()
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    chosen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, drawn: Sequence[Leaves]) -> "PublishedVector":
        """Build the vector from some draws, with the spread of its numbers."""
        widths: dict[str, int] = {}
        for leaves in drawn:
            for name, leaf in leaves.items():
                if leaf.dtype.kind == "f":
                    widths[name] = max(widths.get(name, 0), leaf.size)
        empty = cls(widths=widths)
        return replace(empty, spread=empty.numbers(drawn).std(0))

    @classmethod
    def learnt(cls, taught: Sequence[Sequence[Leaves]], equal: Sequence[Sequence[Leaves]]) -> "PublishedVector":
        """The vector with the weights that best distinguish two arms.

        Args:
            taught: draws of both arms.
            equal: the same draws of both arms.
        """
        found = cls.of([*taught[0], *taught[1]])
        out, within = (found.numbers(side) for side in taught)
        spread = np.sqrt((out.var(0) + within.var(0)) / 2)
        gap = np.abs(out.mean(0) - within.mean(0))
        # What no draw changes follows from public facts, such as the number of records: the search without noise
        # compares it.
        noisy = spread > 0
        standard = np.divide(gap, spread, out=np.zeros_like(gap), where=noisy)
        chosen = np.argsort(-standard, kind="stable")[:_COLUMNS]
        shift = found.numbers(equal[1]).mean(0) - found.numbers(equal[0]).mean(0)
        weights = np.divide(shift, spread**2, out=np.zeros_like(shift), where=noisy)
        return replace(
            found, chosen=np.sort(chosen[noisy[chosen]]), weights=weights, texts=_telling_texts(taught), spread=spread
        )

    def numbers(self, drawn: Sequence[Leaves]) -> FloatArray:
        """All numbers of each draw ``(n, k)``, with zeros for a value that is missing or shorter."""
        rows = np.zeros((len(drawn), sum(self.widths.values()) + len(self.widths)))
        for row, leaves in zip(rows, drawn, strict=True):
            at = 0
            for name, width in self.widths.items():
                leaf = leaves.get(name)
                if leaf is not None and leaf.dtype.kind == "f":
                    kept = leaf.ravel()[:width]
                    row[at : at + len(kept)] = kept
                    row[at + width] = leaf.size
                at += width + 1
        return rows

    def rows(self, drawn: Sequence[Leaves]) -> FloatArray:
        """One row of numbers for each draw, starting with the weighted sum."""
        numbers = self.numbers(drawn)
        said = [[float(_text_at(leaves, name, place) == text) for name, place, text in self.texts] for leaves in drawn]
        return np.concatenate(
            [numbers @ self.weights[:, None], numbers[:, self.chosen], np.array(said).reshape(len(drawn), -1)], axis=1
        )

    def move(self, one: Leaves, other: Leaves) -> float:
        """The distance between two draws in units of the noise; infinite if texts, or numbers without noise, differ."""
        names = [name for name in {**one, **other} if not equal_values(one.get(name), other.get(name))]
        if not names:
            return 0.0
        gap = np.abs(np.diff(self.numbers([one, other]), axis=0)[0])
        noisy = self.spread > 0
        texts = any(name not in self.widths for name in names)
        return float(np.linalg.norm(gap[noisy] / self.spread[noisy])) + (100.0 if texts else 0.0)


def _telling_texts(taught: Sequence[Sequence[Leaves]]) -> tuple[tuple[str, int, str], ...]:
    """The texts whose chances differ most between two arms, each with the value and the place where it stands."""
    counts: list[dict[tuple[str, int, str], int]] = [{}, {}]
    for found, side in zip(counts, taught, strict=True):
        for leaves in side:
            for name, leaf in leaves.items():
                if leaf.dtype.kind == "U":
                    # The whole value stands at place -1.
                    keys = [
                        (name, -1, "|".join(leaf.ravel())),
                        *((name, at, str(one)) for at, one in enumerate(leaf.ravel())),
                    ]
                    for key in keys:
                        found[key] = found.get(key, 0) + 1
    sizes = [len(side) for side in taught]
    # A text that no draw changes follows from public facts, as above.
    names = {
        key
        for key in {*counts[0], *counts[1]}
        if any(0 < found.get(key, 0) < size for found, size in zip(counts, sizes, strict=True))
    }
    return tuple(sorted(names, key=lambda key: (-abs(counts[0].get(key, 0) - counts[1].get(key, 0)), key))[:_TEXTS])


def _text_at(leaves: Leaves, name: str, place: int) -> str | None:
    leaf = leaves.get(name)
    if leaf is None or leaf.dtype.kind != "U" or place >= leaf.size:
        return None
    return "|".join(leaf.ravel()) if place < 0 else str(leaf.ravel()[place])
