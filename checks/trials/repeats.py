"""Find noise of few values in many independent runs: vectors or single numbers that repeat bit for bit.

A generator that is seeded with few bits, or a uniform number of few bits, gives noise that repeats among some thousand
draws (birthday paradox), while continuous noise of a float's own resolution does not.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.check_result import CheckResult
from ..noise.noise_sample import spacing

VECTORS, NUMBERS = "noise of many vectors", "noise of many values"
_CONSTANT = 0.6
"""Share of the runs of a round that hold one vector, from which it is a public constant and no noise."""
_FEWEST_VECTORS = 3
"""Different vectors that repeat, from which noise is seeded with few bits."""
_POOL = 2**17
"""Numbers that are compared at most."""
_DISCRETE, _ATOM = 512, 0.002
"""Different numbers up to which they are discrete, and share of the numbers from which one is an atom of its own."""
_VALUES, _COARSER = 2.0**18, 64.0
"""Different values below which noise has few, and factor by which a float's own resolution must be finer."""
_LEAST = 4096
"""Numbers from which anything is compared."""


@dataclass(kw_only=True)
class Repeats:
    """The vectors and numbers of runs on equal data, in which only cohorts, lots and noise differ."""

    names: dict[tuple[str, int], list[FloatArray]] = field(default_factory=dict)
    pool: list[FloatArray] = field(default_factory=list)
    pooled: int = 0

    def add(self, rounds: list[dict[str, FloatArray]], numbers: FloatArray | None) -> None:
        """Add a batch.

        Args:
            rounds: of each round the names ``(R, rows)`` of the vectors, which equal vectors share, by who sent them.
            numbers: of reports on one and the same input; None where inputs differ.
        """
        for turn, named in enumerate(rounds):
            for who, names in named.items():
                self.names.setdefault((who, turn), []).append(names)
        if numbers is not None and self.pooled < _POOL:
            self.pool.append(numbers[: _POOL - self.pooled])
            self.pooled += len(self.pool[-1])

    def results(self) -> Iterator[CheckResult]:
        """Yield the checks for which there were enough vectors or numbers."""
        counts = [self._of(who) for who in dict.fromkeys(who for who, _ in self.names)]
        total, repeated, pairs = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
        if total >= _LEAST:
            words = f"{total} vectors of independent runs"
            if pairs:
                words += f", as if noise had about {total**2 / (2 * len(counts) * pairs):.1g} values"
            passed = repeated < _FEWEST_VECTORS
            # One or two that come again are constants of few runs.
            repeated = 0 if passed else repeated
            yield CheckResult(
                name=VECTORS,
                passed=passed,
                measured=float(repeated),
                allowed=0.0,
                unit="vectors",
                witness=f"vectors that equal one of another run bit for bit; {words}",
            )
        yield from self._numbers()

    def _of(self, who: str) -> tuple[int, int, int]:
        """How many vectors there are, how many different ones repeat in another run, and in how many pairs."""
        found: list[FloatArray] = []
        for (sender, _), batches in self.names.items():
            if sender != who:
                continue
            width = max(batch.shape[1] for batch in batches)
            names = np.concatenate([_padded(batch, width) for batch in batches])
            values, counts = np.unique(names[~np.isnan(names)], return_counts=True)
            constant = values[counts > _CONSTANT * len(names)]
            found.append(np.where(np.isin(names, constant), np.nan, names))
        runs = np.concatenate(found, axis=1)
        # Within a run a vector may come again, as when a round is skipped.
        each = np.concatenate([np.unique(run[~np.isnan(run)]) for run in runs])
        _, counts = np.unique(each, return_counts=True)
        again = counts[counts > 1].astype(float)
        return len(each), len(again), int((again * (again - 1) / 2).sum())

    def _numbers(self) -> Iterator[CheckResult]:
        if self.pooled < _LEAST:
            return
        numbers = np.concatenate(self.pool)
        values, counts = np.unique(numbers[numbers != 0], return_counts=True)
        few = counts < max(2, _ATOM * len(numbers))
        values, counts = values[few], counts[few].astype(float)
        total = float(counts.sum())
        if total < _LEAST or len(values) <= _DISCRETE or spacing(numbers[:_LEAST]) > 0:
            return
        pairs = float((counts * (counts - 1) / 2).sum())
        seen = total**2 / (2 * pairs) if pairs else math.inf
        low, high = (float(one) for one in np.quantile(values, [0.1, 0.9]))
        # Single precision resolves no more, where most of the numbers lie.
        resolved = (high - low) / float(np.spacing(np.float32(max(abs(low), abs(high)))))
        limit = min(_VALUES, resolved / _COARSER)
        yield CheckResult.at_least(
            NUMBERS,
            min(seen, 2.0**53),
            limit,
            unit="values",
            witness=f"values from which {int(total)} numbers on one input seem drawn, by how many of them are equal",
        )


def _padded(names: FloatArray, width: int) -> FloatArray:
    return np.pad(names, ((0, 0), (0, width - names.shape[1])), constant_values=np.nan)
