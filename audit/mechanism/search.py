"""Search for the event that proves most about a mechanism, in pilot trials that the bound does not count.

An event is that a score exceeds a threshold; or the score guesses the run's input, and withholds the guess between two
thresholds. A poor choice lowers the bound and leaves it valid. Rounds are of equal cost, so that a pilot's luck does
not decide and weak pairs of inputs cost little: each round halves the number of pairs and doubles the trials of those
that are left (successive halving: Karnin, Koren, Somekh 2013). Scores are learnt on one half of the trials and ranked
on the other. On the last two pairs slow scores are learnt too, and fresh trials choose among the best and fix the
thresholds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ..arrays import FloatArray, as_floats, refuse_lost
from ..binomial import privacy_loss, upper_bound
from ..estimators.event_ratio import Contrast
from ..estimators.guess_odds import EventGuesses, GuessRule, best_rule, cautious, expected_bound, fits_coins
from ..threshold import CountingPlan, Cut, below_cuts, best_cut
from .candidates import candidates
from .scores import CountedScore, Counts, Score
from .trial_stream import Mechanism, Stream, TrialPurpose, open_stream

# With fewer hits the test of the ratio loses what it gains over two separate bounds.
_FEWEST_HITS = 200


@dataclass(frozen=True, eq=False)
class Given:
    """A score of a mechanism's outputs, computed by a function of the user.

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

    def guesses(self, outputs: NDArray[Any]) -> EventGuesses:
        """Count the outputs that the event assigns to the second input, and those that it assigns to the first."""
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
    """Fix the event of a score for a claim without a curve: guesses of the inputs, or a ratio of two large rates.

    ``member``, ``nonmember``: as in ``fix_event``. ``caution``: how many times the selection bias is
    subtracted; the smaller, the rarer the chosen event. ``compared``: the number of scores that are compared.
    """
    event = _guessing(score, *best_rule(member, nonmember, plan, caution, compared))
    cuts, below_in, below_out = below_cuts(member, nonmember)
    tpr, fpr = 1 - below_in / len(member), 1 - below_out / len(nonmember)
    pilot = min(len(member), len(nonmember))
    for complement, (high, low) in enumerate(((tpr, fpr), (1 - fpr, 1 - tpr))):
        raised = cautious(high, low, pilot, compared, caution)
        bounds = expected_bound(high, raised, plan, fair_coins=False)
        bounds[low * plan.trials < _FEWEST_HITS] = -math.inf
        best = int(np.argmax(bounds))
        if bounds[best] > event.cut.bound:
            weight = float((high[best] - plan.delta) / low[best])
            contrast = Contrast(weight=weight, complement=bool(complement))
            cut = Cut(threshold=float(cuts[best]), margin=0.0, bound=float(bounds[best]))
            event = Event(score=score, cut=cut, contrast=contrast)
    return event


def fix_both_sides(score: Score, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
    """Fix the event that is expected to refute best, for a score that guesses both inputs; arguments as in
    ``fix_event``.
    """
    return _guessing(score, *best_rule(member, nonmember, plan, both_sides=True))


def _guessing(score: Score, rule: GuessRule, bound: float) -> Event:
    return Event(score=score, cut=Cut(threshold=rule.threshold, margin=0.0, bound=bound), rule=rule)


def on_fresh(event: Event, member: FloatArray, nonmember: FloatArray, plan: CountingPlan, *, compared: int) -> Event:
    """Return an event of ``fix_guesses`` with the bound expected from its score's values (n,) on fresh pilot outputs.

    Their ratio becomes the weight of its contrast. ``compared``: the number of events that are compared.
    """
    rule = event.rule or GuessRule(high=event.cut.threshold, low=-math.inf)
    within, out = rule.guesses(member), rule.guesses(nonmember)
    n1, n0 = len(member), len(nonmember)
    likely, rare = within.second / n1 + out.first / n0, out.second / n0 + within.first / n1
    contrast = event.contrast
    if contrast is not None and contrast.complement:
        likely, rare = 1 - out.second / n0, 1 - within.second / n1
    if contrast is not None and likely > plan.delta and rare:
        contrast = replace(contrast, weight=(likely - plan.delta) / rare)
    pilot, rates = min(n0, n1), (np.array([likely]), np.array([rare]))
    raised = cautious(*rates, pilot, compared)
    bound = expected_bound(rates[0], raised, plan, fair_coins=event.rule is not None, sides=rule.sides)
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
    """Raise ValueError for a score of one output that uses the other outputs (their mean, their ranks): its trials
    would be dependent.
    """
    # A tolerance, because sums over a batch of another size may round differently.
    few = len(outputs) // 2
    if not np.allclose(score.score(outputs[:few]), score.score(outputs)[:few], rtol=1e-5, atol=1e-8):
        raise ValueError(
            f"score must depend on each output alone, but {few} outputs got other scores when they were passed "
            "without the others"
        )


# A pilot has half as many trials as are counted, within limits; 2^22 values of it fit into memory.
_SHARE, _FEWEST, _MOST, _VALUES = 2, 40, 2**20, 2**22
# Pairs of inputs that are left for the last rounds, and scores kept of each.
_PAIRS, _SCORES = 2, 4
# Fresh trials choose among events of each score that were fixed with these shares of caution.
_CAUTIONS = (0.5, 1.0, 2.0)
# Of more scores, a quarter of very many trials finds the best, which are compared on all.
_COMPARED, _MANY, _PART = 8, 50_000, 4


_Streams = tuple[Stream, Stream]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The result of a search: the event, the two trial streams of its pair of inputs, and the number of pairs
    examined.
    """

    streams: tuple[Stream, Stream]
    event: Event
    pairs: int


def find_event(
    mechanism: Mechanism,
    pairs: Sequence[tuple[Any, Any]],
    plan: CountingPlan,
    *,
    seed: int,
    batched: bool,
    pilot: int | None,
    score: Callable[[NDArray[Any]], ArrayLike] | None,
    low_bits: bool,
    coins: bool = False,
) -> Found:
    """Return the pair of inputs and the event that are expected to refute a false claim best.

    ``pilot``: trials per input, on average over the pairs, None for the default. ``score``: the user's own, which only
    needs a threshold. ``low_bits``: look at the lowest bits of floating-point outputs, and at nothing else. ``coins``:
    whether coins may choose the inputs of the counted trials.
    """
    opened = [_open(mechanism, both, pair=at, seed=seed, batched=batched) for at, both in enumerate(pairs)]
    trials = pilot or int(np.clip(plan.trials // _SHARE, _FEWEST, _MOST))
    guesses = coins and fits_coins(curve=plan.curve, trials=plan.trials)
    search = _Search(plan=plan, guesses=guesses, low_bits=low_bits, inputs=dict(zip(opened, pairs, strict=True)))
    if score is not None:
        given = Event(score=Given(score), cut=Cut(threshold=0.0, margin=0.0, bound=0.0))
        check_alone(given.score, _drawn(opened[0][1], TrialPurpose.PILOT, _FEWEST * 2))
        found = search.best([_Finalist(streams=both, event=given) for both in opened], trials)
    else:
        rounds = max(0, math.ceil(math.log2(len(opened) / _PAIRS)))
        share = trials * len(opened) // (rounds + 2)
        for _ in range(rounds):
            opened = search.half(opened, share // len(opened))
        found = search.best(search.finalists(opened, share // len(opened)), share // len(opened))
    return Found(streams=found[0], event=found[1], pairs=len(pairs))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Finalist:
    """A score of a pair of streams, the ``event`` by which it is ranked, and its events of other rarity."""

    streams: _Streams
    event: Event
    others: Sequence[Event] = ()

    @property
    def promise(self) -> tuple[float, float]:
        return self.event.cut.promise


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """What all rounds of a search share; ``inputs`` are those of each pair of streams, ``guesses`` whether guesses may
    be counted.
    """

    plan: CountingPlan
    guesses: bool
    low_bits: bool
    inputs: dict[_Streams, tuple[Any, Any]]

    def half(self, opened: list[_Streams], trials: int) -> list[_Streams]:
        """The half of the pairs whose best scores promise most."""
        looked = [max(found.promise for found in self._learnt(both, trials, thorough=False)) for both in opened]
        # A stable order, so that pairs of equal promise keep theirs.
        order = sorted(range(len(opened)), key=lambda at: looked[at], reverse=True)
        return [opened[at] for at in order[: (len(opened) + 1) // 2]]

    def finalists(self, opened: list[_Streams], trials: int) -> list[_Finalist]:
        """The best scores of the last pairs: those of the best events, and one of the best rare event."""
        found = []
        for both in opened:
            learnt = self._learnt(both, trials, thorough=True)
            rare = max(learnt, key=lambda one: max((event.cut.promise for event in one.others), default=one.promise))
            found += list(dict.fromkeys([*_best(learnt, _SCORES), rare]))
        return found

    def best(self, finalists: Sequence[_Finalist], trials: int) -> tuple[_Streams, Event]:
        """The best event of some scores on fresh trials."""
        found = []
        compared = len({(one.streams, str(event)) for one in finalists for event in one.others})
        for both in dict.fromkeys(one.streams for one in finalists):
            own = [one for one in finalists if one.streams is both]
            for one, values in zip(own, self._scored(both, [one.event.score for one in own], trials), strict=True):
                events = [on_fresh(event, *values, self.plan, compared=compared) for event in one.others]
                found += [(both, event) for event in events or [self._event(one.event.score, *values)]]
        return max(found, key=lambda one: one[1].cut.promise)

    def _learnt(self, both: _Streams, trials: int, *, thorough: bool) -> list[_Finalist]:
        """Scores learnt on one part of some trials, with the events that the rest gives them."""
        learning = max(2, trials // 2)
        fitted = min(learning, max(2, _VALUES // max(1, int(np.prod(both[0].shape)))))
        nonmember, member = (_drawn(side, TrialPurpose.PILOT, fitted) for side in both)
        scores = list(candidates(member, nonmember, self.inputs[both], thorough=thorough, low_bits=self.low_bits))
        # Apart, because a score looks better on the trials that it was fitted to than on new ones.
        ranking = trials - learning
        if len(scores) > _COMPARED and ranking > _MANY:
            few = _best(self._ranked(both, scores, max(_MANY, ranking // _PART)), _COMPARED)
            scores = [one.event.score for one in few]
        if learning > fitted:
            scores = _counted(both, scores, learning)
        return self._ranked(both, scores, ranking, others=_CAUTIONS if thorough else ())

    def _ranked(
        self, both: _Streams, scores: Sequence[Score], trials: int, others: Sequence[float] = ()
    ) -> list[_Finalist]:
        found = []
        for score, values in zip(scores, self._scored(both, scores, trials, TrialPurpose.RANKING), strict=True):
            more = [self._event(score, *values, caution=other) for other in others if self.guesses]
            if more:
                more.append(fix_both_sides(score, *values, self.plan))
            found.append(_Finalist(streams=both, event=self._event(score, *values, compared=len(scores)), others=more))
        return found

    def _event(
        self, score: Score, member: FloatArray, nonmember: FloatArray, caution: float = 1.0, compared: int = 1
    ) -> Event:
        if self.guesses:
            return fix_guesses(score, member, nonmember, self.plan, caution=caution, compared=compared)
        return fix_event(score, member, nonmember, self.plan)

    def _scored(
        self,
        both: _Streams,
        scores: Sequence[Score],
        trials: int,
        purpose: TrialPurpose = TrialPurpose.CHOICE,
    ) -> list[tuple[FloatArray, FloatArray]]:
        """The values of each score on trials of the second and of the first input; only these are kept."""
        sides = []
        for side in reversed(both):
            chunks = [[score.score(outputs) for score in scores] for outputs in side.draw(purpose, max(2, trials))]
            sides.append([np.concatenate(values) for values in zip(*chunks, strict=True)])
        return list(zip(*sides, strict=True))


def _best(finalists: Sequence[_Finalist], number: int) -> list[_Finalist]:
    """The finalists with the largest promises; two scores with the same promise are one in two forms."""
    distinct = {one.promise: one for one in reversed(finalists)}
    return [distinct[promise] for promise in sorted(distinct, reverse=True)[:number]]


def _open(mechanism: Mechanism, both: tuple[Any, Any], *, pair: int, seed: int, batched: bool) -> _Streams:
    out, within = (
        open_stream(mechanism, x, arm=arm, pair=pair, seed=seed, batched=batched) for arm, x in enumerate(both)
    )
    if (out.shape, out.text) != (within.shape, within.text):
        kinds = [f"{'strings' if side.text else 'numbers'} of shape {side.shape}" for side in (out, within)]
        raise ValueError(f"outputs on both inputs must have the same type and shape, got {kinds[0]} and {kinds[1]}")
    return out, within


def _counted(both: _Streams, scores: Sequence[Score], trials: int) -> list[Score]:
    """The scores with the counts of all trials, where they are made of counts."""
    tables = {at: score for at, score in enumerate(scores) if isinstance(score, CountedScore)}
    sides: list[dict[int, Counts]] = []
    for side in both:
        total: dict[int, Counts] = {}
        for outputs in side.draw(TrialPurpose.PILOT, trials):
            for at, score in tables.items():
                counts = score.count(outputs)
                total[at] = list(map(np.add, total[at], counts)) if at in total else counts
        sides.append(total)
    return [
        tables[at].counted(sides[1][at], sides[0][at]) if at in tables else score for at, score in enumerate(scores)
    ]


def _drawn(side: Stream, purpose: TrialPurpose, trials: int) -> NDArray[Any]:
    chunks = list(side.draw(purpose, trials))
    joined = np.concatenate(chunks)
    # Chunks of different number types become floats when joined, which may merge whole numbers above 2^53.
    if joined.dtype.kind == "f":
        refuse_lost("outputs", chunks)
    return joined
