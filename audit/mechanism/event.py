"""Chooses, on pilot trials that the bound does not count, a score of a mechanism's outputs and a threshold for it.

One half of the pilot trains the candidate scores; the other half chooses one of them, and the threshold with the best
expected result at the number of trials to be counted. A poor choice lowers the bound and leaves it valid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray
from ..estimators.hockey_stick import Classifier, fit
from ..exact import as_floats
from ..power.cut import CountingPlan, Cut, best_cut
from .output_table import FrequencyTable, frequencies, row_keys, tabulate

_BINS = 64
# Newton's method solves a system in twice the coordinates; beyond 100 it overfits a pilot and takes long.
_MOST_FITTED = 100


class Score(Protocol):
    """The interface of a function that scores a mechanism's outputs; ``str(score)`` is its name in the results of an
    audit.
    """

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Return one score per output: an array ``(n, ...)`` becomes ``(n,)``, higher means the second input."""


@dataclass(frozen=True, eq=False)
class Given:
    """A score of a mechanism's outputs that a function of the user computes.

    Raises ValueError unless it gives one finite number per output.
    """

    function: Callable[[NDArray[Any]], ArrayLike]

    def __str__(self) -> str:
        return f"score {getattr(self.function, '__name__', 'given')}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        scores = as_floats("score", self.function(outputs))
        if scores.shape != (len(outputs),):
            raise ValueError(
                f"score must return one number per output, shape ({len(outputs)},), got shape {scores.shape}"
            )
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        if bad:
            raise ValueError(f"score must return finite numbers, got {bad} of {len(scores)} NaN or infinite")
        return scores


@dataclass(frozen=True, eq=False)
class Logistic:
    """A score of a mechanism's output by logistic regression on its coordinates and their squares, as in
    ``hockey_stick``.
    """

    classifier: Classifier

    def __str__(self) -> str:
        return "logistic regression on the coordinates and their squares"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.classifier.score(_numbers(outputs))


@dataclass(frozen=True, eq=False)
class Projection:
    """A score that projects outputs on a ``direction``; it is optimal for isotropic Gaussian noise."""

    direction: FloatArray
    name: str

    def __str__(self) -> str:
        return f"projection on {self.name}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(_numbers(outputs) @ self.direction, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Histogram:
    """A score for mechanisms that output one number: the likelihood ratio of the histogram bin into which the output
    falls.

    It separates distributions that neither a linear nor a quadratic score separates.
    """

    edges: FloatArray
    table: FrequencyTable

    def __str__(self) -> str:
        return f"likelihood ratio in {len(self.edges) + 1} bins"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.table.score(np.searchsorted(self.edges, _numbers(outputs)[:, 0]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """The event that an output's score exceeds a threshold, in which case the audit guesses that the mechanism ran on
    the second input.
    """

    score: Score
    cut: Cut

    def __str__(self) -> str:
        return f"{{{self.score} > {self.cut.threshold:.6g}}}"

    def hits(self, outputs: NDArray[Any]) -> int:
        """Return how many of the mechanism's outputs have a score above the event's threshold."""
        return int(np.count_nonzero(self.score.score(outputs) > self.cut.threshold))


def learn_event(
    member: NDArray[Any],
    nonmember: NDArray[Any],
    plan: CountingPlan,
    *,
    score: Callable[[NDArray[Any]], ArrayLike] | None = None,
    inputs: tuple[Any, Any] | None = None,
) -> Event:
    """Choose, on pilot outputs of a mechanism, the score and threshold that are expected to refute a false claim best.

    ``member``, ``nonmember``: ``(n, ...)`` pilot outputs of the second and of the first input, n >= 4.

    ``score``: the user's own, used as it is given. ``inputs``: of world 0 and 1; their difference is tried as a
    direction where it has the shape of an output.
    """
    if score is not None:
        event = _cut(Given(score), member, nonmember, plan)
        _check_alone(event.score, member)
        return event
    # Halved, because a score looks better on the trials that it was fitted to than on new ones.
    half_in, half_out = len(member) // 2, len(nonmember) // 2
    candidates = _candidates(member[:half_in], nonmember[:half_out], inputs)
    events = [_cut(candidate, member[half_in:], nonmember[half_out:], plan) for candidate in candidates]
    return max(events, key=lambda event: event.cut.promise)


def _cut(score: Score, member: NDArray[Any], nonmember: NDArray[Any], plan: CountingPlan) -> Event:
    return Event(score=score, cut=best_cut(score.score(member), score.score(nonmember), plan))


def _check_alone(score: Score, outputs: NDArray[Any]) -> None:
    """Refuse a score that uses the other outputs (their mean, their ranks): its trials would be dependent."""
    # A tolerance, because sums over a batch of another size may round differently.
    few = len(outputs) // 2
    if not np.allclose(score.score(outputs[:few]), score.score(outputs)[:few], rtol=1e-5, atol=1e-8):
        raise ValueError(
            f"score must depend on each output alone, but {few} outputs got other scores when they were passed without "
            "the remaining outputs"
        )


def _candidates(member: NDArray[Any], nonmember: NDArray[Any], inputs: tuple[Any, Any] | None) -> list[Score]:
    table = tabulate(member, nonmember)
    # With few distinct outputs the table is the likelihood ratio itself, which no other candidate beats.
    if table is not None:
        return [table]
    if member.dtype.kind in "US":
        raise ValueError(
            "outputs are strings with too many different values to learn a score from pilot trials: pass a function "
            "that scores them"
        )
    rows_in, rows_out = _numbers(member), _numbers(nonmember)
    found: list[Score] = []
    if rows_in.shape[1] <= _MOST_FITTED:
        found.append(Logistic(fit(rows_in, rows_out)))
    else:
        found.append(_projection(rows_in.mean(axis=0) - rows_out.mean(axis=0), "the difference of the means"))
    if rows_in.shape[1] == 1:
        found.append(_histogram(rows_in[:, 0], rows_out[:, 0]))
    shift = _shift(inputs, member.shape[1:])
    return found if shift is None else [*found, _projection(shift, "x1 - x0")]


def _histogram(member: FloatArray, nonmember: FloatArray) -> Histogram:
    shares = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(np.concatenate([member, nonmember]), shares))
    binned = [row_keys(np.searchsorted(edges, side)) for side in (member, nonmember)]
    return Histogram(edges, frequencies(*binned))


def _shift(inputs: tuple[Any, Any] | None, shape: tuple[int, ...]) -> FloatArray | None:
    if inputs is None:
        return None
    arrays = [np.asarray(x) for x in inputs]
    if any(array.dtype.kind not in "biuf" or array.shape != shape for array in arrays):
        return None
    shift = arrays[1].astype(np.float64) - arrays[0]
    return shift.reshape(-1) if np.isfinite(shift).all() and shift.any() else None


def _projection(direction: FloatArray, name: str) -> Projection:
    # Scaled to 1, so that products with large outputs do not overflow.
    largest = float(np.abs(direction).max())
    return Projection(direction / largest if largest > 0 else direction, name)


def _numbers(outputs: NDArray[Any]) -> FloatArray:
    # Clipped, because the square of a number above 1e154 overflows.
    return np.clip(as_floats("outputs", outputs).reshape(len(outputs), -1), -1e150, 1e150)
