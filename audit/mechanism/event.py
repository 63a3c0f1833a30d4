"""An event of a mechanism's outputs: a score exceeds a threshold, both fixed on pilot trials that the bound does not
count.

A poor choice lowers the bound and leaves it valid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ..arrays import FloatArray
from ..binomial import privacy_loss, upper_bound
from ..estimators.event_ratio import Contrast
from ..exact import as_floats
from ..power.cut import CountingPlan, Cut, best_cut, score_cuts
from .expected_bound import expected_bound, raised_rate, selection_bias
from .guess_rule import Guesses, GuessRule, best_rule
from .score import Score

# With fewer hits the test of the ratio loses what it gains over two separate bounds.
_FEWEST_HITS = 200


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
    bounds. ``rule``: the guesses to be counted instead, of inputs that coins choose, where these are expected to show
    most.
    """

    score: Score
    cut: Cut
    contrast: Contrast | None = None
    rule: GuessRule | None = None

    def __str__(self) -> str:
        return f"{{{self.score} {self.rule or f'> {self.cut.threshold:.6g}'}}}"

    def guesses(self, outputs: NDArray[Any]) -> Guesses:
        """Count the mechanism's outputs that the event guesses to be of the second, and of the first input."""
        rule = self.rule or GuessRule(high=self.cut.threshold, low=-math.inf)
        return rule.guesses(self.score.score(outputs))


def fix_event(score: Score, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
    """Fix the threshold of a score, from its values (n,) on pilot outputs of the second and of the first input."""
    cut = best_cut(member, nonmember, plan)
    # A stated curve is tested by the two rates, which spend the whole of alpha.
    contrast = None if plan.curve is not None else _contrast(cut, member, nonmember, plan)
    return Event(score=score, cut=cut, contrast=contrast)


def fix_guesses(
    score: Score,
    member: FloatArray,
    nonmember: FloatArray,
    plan: CountingPlan,
    *,
    caution: float = 1.0,
    compared: int = 1,
) -> Event:
    """Fix the event of a score for a claim without delta: guesses of the inputs, or a ratio of two large rates.

    ``member``, ``nonmember``: as in ``fix_event``. ``caution``: how many times the selection bias is
    subtracted; the smaller, the rarer the chosen event. ``compared``: the number of scores that are compared.
    """
    event = _guessing(score, *best_rule(member, nonmember, plan, caution, compared))
    score_in, score_out = np.sort(member), np.sort(nonmember)
    cuts = score_cuts(np.unique(np.concatenate([score_in, score_out])))
    tpr, fpr = (1 - np.searchsorted(side, cuts, side="right") / len(side) for side in (score_in, score_out))
    pilot = min(len(member), len(nonmember))
    for complement, (high, low) in enumerate(((tpr, fpr), (1 - fpr, 1 - tpr))):
        raised = raised_rate(high, low, pilot, caution * selection_bias(high, low, pilot, compared))
        bounds = expected_bound(high, raised, plan, fair_coins=False)
        bounds[low * plan.trials < _FEWEST_HITS] = -math.inf
        best = int(np.argmax(bounds))
        if bounds[best] > event.cut.bound:
            contrast = Contrast(weight=float(high[best] / low[best]), complement=bool(complement))
            cut = Cut(threshold=float(cuts[best]), margin=0.0, bound=float(bounds[best]))
            event = Event(score=score, cut=cut, contrast=contrast)
    return event


def fix_both_sides(score: Score, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
    """Fix the best event of a score that guesses both inputs, which varies least; arguments as in ``fix_event``."""
    return _guessing(score, *best_rule(member, nonmember, plan, both_sides=True))


def _guessing(score: Score, rule: GuessRule, bound: float) -> Event:
    return Event(score=score, cut=Cut(threshold=rule.threshold, margin=0.0, bound=bound), rule=rule)


def on_fresh(event: Event, member: FloatArray, nonmember: FloatArray, plan: CountingPlan, *, compared: int) -> Event:
    """Return an event of ``fix_guesses`` with the bound that its score's values (n,) on fresh pilot outputs promise.

    Their ratio becomes the weight of its contrast. ``compared``: the number of events that are compared.
    """
    rule = event.rule or GuessRule(high=event.cut.threshold, low=-math.inf)
    within, out = rule.guesses(member), rule.guesses(nonmember)
    n1, n0 = len(member), len(nonmember)
    likely, rare = within.second / n1 + out.first / n0, out.second / n0 + within.first / n1
    contrast = event.contrast
    if contrast is not None and contrast.complement:
        likely, rare = 1 - out.second / n0, 1 - within.second / n1
    if contrast is not None and likely and rare:
        contrast = replace(contrast, weight=likely / rare)
    pilot, rates = min(n0, n1), (np.array([likely]), np.array([rare]))
    raised = raised_rate(*rates, pilot, selection_bias(*rates, pilot, compared))
    bound = expected_bound(rates[0], raised, plan, fair_coins=event.rule is not None)
    return replace(event, contrast=contrast, cut=replace(event.cut, bound=float(bound[0])))


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
