"""Event: a score of a mechanism's output and its threshold, both fixed on a pilot that is never counted.

One half of the pilot teaches the candidate scores, the other half chooses one of them and the threshold that should
show most at the number of trials to be counted. A poor choice shows less, and is no less right.
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
_MOST_FITTED = 100


class Score(Protocol):
    """``str(score)`` names it in a witness."""

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """``outputs``: (n, ...) -> (n,), higher means world 1."""


@dataclass(frozen=True, eq=False)
class Given:
    """The user's own score. ValueError where it is not one finite number an output."""

    function: Callable[[NDArray[Any]], ArrayLike]

    def __str__(self) -> str:
        return f"score {getattr(self.function, '__name__', 'given')}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        scores = as_floats("score", self.function(outputs))
        if scores.shape != (len(outputs),):
            raise ValueError(f"score must give ({len(outputs)},), one number an output, got shape {scores.shape}")
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        if bad:
            raise ValueError(f"score must give finite numbers, got {bad} of {len(scores)} NaN or infinite")
        return scores


@dataclass(frozen=True, eq=False)
class Logistic:
    """The classifier of ``hockey_stick``: coordinates and their squares."""

    classifier: Classifier

    def __str__(self) -> str:
        return "logistic regression on the coordinates and their squares"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.classifier.score(_numbers(outputs))


@dataclass(frozen=True, eq=False)
class Projection:
    """MechanismOutputs along a ``direction``: the likelihood ratio of noise that is the same in every direction."""

    direction: FloatArray
    name: str

    def __str__(self) -> str:
        return f"projection on {self.name}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(_numbers(outputs) @ self.direction, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Histogram:
    """One number in bins of equal pilot mass: sees what no line and no parabola separates."""

    edges: FloatArray
    table: FrequencyTable

    def __str__(self) -> str:
        return f"likelihood ratio in {len(self.edges) + 1} bins"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.table.score(np.searchsorted(self.edges, _numbers(outputs)[:, 0]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """{score > threshold}: a guess of world 1."""

    score: Score
    cut: Cut

    def __str__(self) -> str:
        return f"{{{self.score} > {self.cut.threshold:.6g}}}"

    def hits(self, outputs: NDArray[Any]) -> int:
        """How many of the outputs lie in the event."""
        return int(np.count_nonzero(self.score.score(outputs) > self.cut.threshold))


def learn_event(
    member: NDArray[Any],
    nonmember: NDArray[Any],
    plan: CountingPlan,
    *,
    score: Callable[[NDArray[Any]], ArrayLike] | None = None,
    inputs: tuple[Any, Any] | None = None,
) -> Event:
    """The most promising event, from ``(n, ...)`` pilot outputs of world 1 and world 0, n >= 4.

    ``score``: the user's own, used as it is given. ``inputs``: of world 0 and 1; their difference is tried as a
    direction where it has the shape of an output.
    """
    if score is not None:
        event = _cut(Given(score), member, nonmember, plan)
        _check_alone(event.score, member)
        return event
    half_in, half_out = len(member) // 2, len(nonmember) // 2
    candidates = _candidates(member[:half_in], nonmember[:half_out], inputs)
    events = [_cut(candidate, member[half_in:], nonmember[half_out:], plan) for candidate in candidates]
    return max(events, key=lambda event: event.cut.promise)


def _cut(score: Score, member: NDArray[Any], nonmember: NDArray[Any], plan: CountingPlan) -> Event:
    return Event(score=score, cut=best_cut(score.score(member), score.score(nonmember), plan))


def _check_alone(score: Score, outputs: NDArray[Any]) -> None:
    """A score that looks at the other outputs (their mean, their ranks) makes dependent trials of independent ones."""
    few = len(outputs) // 2
    if not np.allclose(score.score(outputs[:few]), score.score(outputs)[:few], rtol=1e-5, atol=1e-8):
        raise ValueError(f"score must score each output by itself, got other scores for {few} outputs without the rest")


def _candidates(member: NDArray[Any], nonmember: NDArray[Any], inputs: tuple[Any, Any] | None) -> list[Score]:
    table = tabulate(member, nonmember)
    if table is not None:
        return [table]
    if member.dtype.kind in "US":
        raise ValueError("outputs are strings of more values than a pilot can learn: give a score")
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
    largest = float(np.abs(direction).max())
    return Projection(direction / largest if largest > 0 else direction, name)


def _numbers(outputs: NDArray[Any]) -> FloatArray:
    # Beyond 1e150 a sum of squares overflows.
    return np.clip(as_floats("outputs", outputs).reshape(len(outputs), -1), -1e150, 1e150)
