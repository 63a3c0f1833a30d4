"""An event of a mechanism's outputs: a score exceeds a threshold, both fixed on pilot trials that the bound does not
count.

A poor choice lowers the bound and leaves it valid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ..arrays import FloatArray
from ..binomial import privacy_loss, upper_bound
from ..estimators.event_ratio import Contrast
from ..exact import as_floats
from ..power.cut import CountingPlan, Cut, best_cut

# With fewer hits the test of the ratio loses what it gains over two separate bounds.
_FEWEST_HITS = 200


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """The event that an output's score exceeds a threshold, in which case the audit guesses that the mechanism ran on
    the second input.

    ``contrast``: how its counts are to be compared where a test of their ratio is expected to show more than two
    bounds.
    """

    score: Score
    cut: Cut
    contrast: Contrast | None = None

    def __str__(self) -> str:
        return f"{{{self.score} > {self.cut.threshold:.6g}}}"

    def hits(self, outputs: NDArray[Any]) -> int:
        """Return how many of the mechanism's outputs have a score above the event's threshold."""
        return int(np.count_nonzero(self.score.score(outputs) > self.cut.threshold))


def fix_event(score: Score, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
    """Fix the threshold of a score, from its values (n,) on pilot outputs of the second and of the first input."""
    cut = best_cut(member, nonmember, plan)
    # A stated curve is tested by the two rates, which spend the whole of alpha.
    contrast = None if plan.curve is not None else _contrast(cut, member, nonmember, plan)
    return Event(score=score, cut=cut, contrast=contrast)


def _contrast(cut: Cut, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Contrast | None:
    n = plan.trials
    tpr, fpr = (float(np.mean(side > cut.threshold)) for side in (member, nonmember))
    fpr_high, fnr_high = (upper_bound(np.floor(rate * n), n, plan.alpha / 2) for rate in (fpr, 1 - tpr))
    best, shown = None, float(privacy_loss(fpr_high, fnr_high, plan.delta))
    for complement, (high, low) in enumerate(((tpr, fpr), (1 - fpr, 1 - tpr))):
        if min(high - plan.delta, low) * n < _FEWEST_HITS:
            continue
        ratio = (high - plan.delta) / low
        error = math.sqrt(high * (1 - high) / (high - plan.delta) ** 2 + (1 - low) / low) / math.sqrt(n)
        expected = math.log(ratio) - float(ndtri(1 - plan.alpha)) * error
        if expected > shown:
            best, shown = Contrast(weight=ratio, complement=bool(complement)), expected
    return best


def check_alone(score: Score, outputs: NDArray[Any]) -> None:
    """Raise ValueError for a score that uses the other outputs (their mean, their ranks): its trials would be
    dependent.
    """
    # A tolerance, because sums over a batch of another size may round differently.
    few = len(outputs) // 2
    if not np.allclose(score.score(outputs[:few]), score.score(outputs)[:few], rtol=1e-5, atol=1e-8):
        raise ValueError(
            f"score must depend on each output alone, but {few} outputs got other scores when they were passed without "
            "the remaining outputs"
        )
