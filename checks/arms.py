"""Trials of two neighbouring inputs of one privacy claim: scores are learnt and events fixed on pilot runs, and the
events are counted in fresh runs.

The bound assumes nothing about the system but that its runs are independent. The event that is counted may be any
function of all that the claim's observer receives, so nothing is assumed of the noise, and what is done with a release
after the noise needs no declaration.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom, chi2

from ..audit.arrays import FloatArray, IntArray
from ..audit.binomial import ErrorCounts, privacy_loss, upper_bound
from ..audit.bisection import crossing
from ..audit.check import Check, CheckResult
from ..audit.claim import Claim
from ..audit.curve import Curve, GaussianCurve, Tangent, epsilon_from_mu, mu_from_epsilon
from ..audit.estimators.clopper_pearson import clopper_pearson_of_counts
from ..audit.estimators.event_ratio import event_ratio_of_counts, refuted_fnr, tangent_low, under_tangent
from ..audit.estimators.guess_odds import (
    FAILS,
    EventGuesses,
    GuessRule,
    best_rule,
    by_coins,
    detectable_at,
    digest,
    expected_bound,
    guess_odds_of_counts,
)
from ..audit.evidence import Setting
from ..audit.finding import refutes
from ..audit.measurement import Measurement
from ..audit.mechanism.columns import coordinates
from ..audit.mechanism.scores import Score, learn_marginals
from ..audit.mechanism.search import Event
from ..audit.mechanism.trial_stream import call_effect
from ..audit.mechanism.trials import Counted, ScoredEvent, Trials, scored_events
from ..audit.power import minimum_detectable_epsilon
from ..audit.threshold import CountingPlan, Cut, below_cuts, margin

Parts = dict[str, FloatArray]
"""What runs received as numbers ``(runs, k)``, by their names."""

_MORE, _RARER, _CHEAP = 4, 4, 2**10
"""Factor by which a second pilot is larger, and by which its events are fixed on still more runs without a curve, where
a batch has so many."""
_CLEAR = 0.1
"""Probability below which a pilot's counts rule out that an event breaks the claim."""
_LIKELY, _OPEN = 0.5, 0.8
"""Probabilities of a pilot's counts at the claim below which they speak for an event, and leave it open."""
_MARGIN = 3.0
"""Standard deviations below a stated curve from which a pilot speaks for an event."""
_BETTER, _FEWEST_HITS, _SMALL = 2.0, 20, 0.5
"""Standard deviations by which a threshold must look better than that of the design; counts of a pilot from which a
rate is known, and the rate of the other error below which it need not be.
"""
_FIRST = 8
"""Share of the runs, one in so many, after which the counts are looked at first."""
GUARD = 2**20
"""Numbers of batches that show whether runs are independent, and are no evidence, start here."""
_CALLS, _ROWS, _DEPENDENT = 16, 16, 1e-6
"""Batches and runs of each that show whether runs of one batch depend on each other, and the level of that test."""
_HEAVIER = 2.0
"""Factor by which a sum of squares of few hits may be larger than that of normal numbers."""
_BINS = (2, 8, 32)
"""Bins in which the marginal numbers of a channel are compared; of the most only where the pilot is large."""
_FINE = 2**12
"""Runs of each arm from which many bins are learnt."""
_CAUTION, _DOUBT = 0.2, 0.01
"""Levels of the bounds on a pilot's rates, for thresholds of the design and for those that the pilot chose."""
_POOLED, _STEPS = 2**17, 30
"""Numbers to which a shift is fitted at most, and steps of its fit."""
_FEWEST, _WANTED, _WANTED_OF_PROFILE, _WEAK = 2**13, 1.12, 1.147, 0.97
"""Runs of each arm that are counted, at least; and the multiple of the claimed epsilon, or of the limit of a weak test,
at which a violation must be found, else more runs are planned. The scores that a pilot learns are a little worse than
the best one; below a curve that is no Gaussian one, the violation that is reckoned with is a little harder to see than
that of noise which is too small.
"""
_FEWEST_OF_TANGENT, _LARGEST_FACTOR, _LARGEST_LOSS = 200, 60.0, 700.0
"""Counts of the rarer error from which one test of both rates needs fewer runs than two bounds; factor of the claimed
losses beyond which a violation is not looked for, and loss beyond which its exponential is no number.
"""
_FPRS = (0.5, 0.3, 0.2, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""False-positive rates at which the power of a number of runs is computed; the best one counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Arms:
    """Two neighbouring inputs of a system, with a function that draws outputs on them.

    Args:
        draw: (arm, runs, block) -> what fresh, independent runs received; arm 0 without the unit, 1 with it. No two
            blocks share a draw; runs of a block that share one are noticed as far as the counted hits show it.
        words: both inputs, for the witness of a verdict.
        batch: runs of one call, at most.
        most: runs of each arm, at most, by their cost.
        rounds: how many numbers a round has, by the names of parts that hold those of single rounds one after the
            other; may be filled by ``draw``.
        of_parts: (names of parts) -> a ``draw`` that may leave out all other parts; None where all cost the same.
    """

    draw: Callable[[int, int, int], Parts]
    words: str
    batch: int
    most: int
    rounds: Mapping[str, int] = field(default_factory=dict)
    of_parts: Callable[[frozenset[str]], Callable[[int, int, int], Parts]] | None = None


@dataclass(kw_only=True)
class Schema:
    """The columns of a matrix of outputs: one range of columns for each part that a pilot contained on any input."""

    widths: dict[str, int] = field(default_factory=dict)

    def learn(self, parts: Parts) -> None:
        """Assign a range of columns to each part, as wide as the part ever is."""
        for name, values in parts.items():
            self.widths[name] = max(self.widths.get(name, 0), values.shape[1])

    def matrix(self, parts: Parts) -> FloatArray:
        """Return the parts as a matrix ``(runs, numbers)``, with zeros for missing parts. The last column counts
        numbers that have no column of their own, because the mere presence of something else may reveal the unit.
        """
        runs = len(next(iter(parts.values()))) if parts else 0
        known = self.widths
        beyond = [
            values[:, known.get(name, 0) :] for name, values in parts.items() if values.shape[1] > known.get(name, 0)
        ]
        other = sum((values != 0).sum(1) for values in beyond)
        found = [_placed(parts.get(name), runs, width) for name, width in self.widths.items()]
        return np.concatenate([*found, np.broadcast_to(other, (runs,)).reshape(-1, 1)], axis=1, dtype=np.float64)

    def places(self, name: str) -> slice:
        """Return the columns in which a part stands."""
        before = list(self.widths).index(name)
        start = sum(list(self.widths.values())[:before])
        return slice(start, start + self.widths[name])


def _placed(values: FloatArray | None, runs: int, width: int) -> FloatArray:
    if values is None:
        return np.zeros((runs, width))
    values = values[:, :width]
    return values if values.shape[1] == width else np.pad(values, ((0, 0), (0, width - values.shape[1])))


class Hits(NamedTuple):
    """The numbers of outputs in the event that tests the stated curve and in the event that tests epsilon. If the
    latter event has a rule that also guesses the input without the unit, a third number counts these guesses.
    """

    curve: int
    epsilon: int
    without: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedEvents:
    """The events that were fixed on a pilot: one against the claim's curve, if it states one, and one against its
    epsilon.

    Args:
        rows: all its runs without and with the unit, ``(runs, numbers)``.
        out, within: how many of ``n`` runs without and with the unit fell into the event by which it is ranked.
        rank: how promising it is.
        suspect: whether the counts speak for a violation.
    """

    arms: Arms
    schema: Schema
    rows: tuple[FloatArray, FloatArray]
    curve: "_CurveEvent | None"
    epsilon: Event
    out: int
    within: int
    n: int
    rank: float
    suspect: bool

    def guesses(self, outputs: NDArray[Any]) -> Hits:
        """Count the outputs that fall into each of the two events."""
        of_curve = 0 if self.curve is None else self.curve.event.guesses(outputs).second
        return Hits(of_curve, *self.epsilon.guesses(outputs))

    @property
    def event(self) -> Event:
        """The event by which this pilot is ranked among others."""
        return self.epsilon if self.curve is None else self.curve.event

    @property
    def counted(self) -> Arms:
        """The inputs for the runs in which the events are counted; these inputs leave out all parts of the outputs that
        neither event reads.
        """
        scores = [self.epsilon.score, self.event.score]
        parts = frozenset(score.part for score in scores if isinstance(score, _OF_ONE_PART))
        if self.arms.of_parts is None or not all(isinstance(score, _OF_ONE_PART) for score in scores):
            return self.arms
        return replace(self.arms, draw=self.arms.of_parts(parts))


class _CurveEvent(NamedTuple):
    """An event that tests the stated curve, by its tangent; by two bounds where there is none, as for rare events."""

    event: Event
    tangent: Tangent | None


@dataclass(kw_only=True)
class TwoArms:
    """Trials of one claim on pairs of inputs, with and without the unit.

    Args:
        alpha: probability, at most, that the counted runs of one pair refute the claim although it holds.
        most: runs of each arm, at most.
        wanted: true epsilon at which a violation must be found; None for what any claim needs.
        made, blocks: count runs and batches; ``different``: whether any two runs on a pair of inputs were different.
    """

    claim: Claim
    alpha: float
    most: int
    wanted: float | None = None
    made: int = 0
    blocks: int = 0
    different: bool = False

    @property
    def constant(self) -> bool:
        """Whether all runs at each pair of inputs gave the same numbers, with and without the unit."""
        return not self.different

    def drawn(self, arms: Arms, arm: int, runs: int) -> Iterator[Parts]:
        """Yield what the observer received in fresh runs, batch by batch."""
        for start in range(0, runs, arms.batch):
            self.blocks += 1
            size = min(arms.batch, runs - start)
            yield arms.draw(arm, size, self.blocks)
            self.made += size

    def pilot(
        self, arms: Arms, learn: int, choose: int, *, before: FixedEvents | None = None, thorough: bool = False
    ) -> FixedEvents:
        """Learn scores on ``learn`` runs of each arm, and fix, on ``choose`` other runs, the events that are most
        likely to refute the claim.

        ``before``: an earlier pilot on the same inputs, all of whose runs teach scores too.
        """
        both = [list(self.drawn(arms, arm, learn + choose)) for arm in (0, 1)]
        schema = Schema() if before is None else before.schema
        if before is None:
            for parts in (*both[0], *both[1]):
                schema.learn(parts)
        out, within = (np.concatenate([schema.matrix(parts) for parts in side]) for side in both)
        self._look(arms, out, within)
        if before is not None:
            learn += len(before.rows[0])
            out, within = (np.concatenate(both) for both in zip(before.rows, (out, within), strict=True))
        plan = CountingPlan(trials=self._runs(arms), delta=self.claim.delta, alpha=self.share, curve=None)
        more = partial(_of_rounds, schema, arms.rounds)
        scored = scored_events(out, within, plan, learn=learn, thorough=thorough, more=more)
        scores = {id(event.score): (member, nonmember) for event, member, nonmember in scored}
        best = self._against_epsilon(scored, plan)
        curve = None if self.claim.curve is None else self._against_curve(scored, self._runs(arms))
        chosen = best if curve is None else curve.event
        if curve is not None:
            farther = self._farther_out(chosen, *scores[id(chosen.score)], plan)
            best = max(best, farther, key=lambda event: event.cut.bound)
        best = _guessing(best, *scores[id(best.score)], plan)
        hits, misses = (int((side > chosen.cut.threshold).sum()) for side in scores[id(chosen.score)])
        rank, suspect = self._rank(chosen, misses, hits, choose)
        return FixedEvents(
            arms=arms,
            schema=schema,
            rows=(out, within),
            curve=curve,
            epsilon=best,
            out=misses,
            within=hits,
            n=choose,
            rank=rank,
            suspect=suspect,
        )

    def best(self, pilots: Sequence[FixedEvents]) -> FixedEvents:
        """Return the most promising of several pilots by successive halving: after each halving, new runs fix the
        events and the earlier runs train the scores.
        """
        while len(pilots) > 1:
            ranked = sorted(pilots, key=lambda pilot: (pilot.suspect, pilot.rank), reverse=True)
            pilots = ranked[: len(ranked) // 2]
            if len(pilots) > 1:
                pilots = [self.pilot(one.arms, 0, 2 * one.n, before=one) for one in pilots]
        return pilots[0]

    def deeper(self, pilot: FixedEvents) -> FixedEvents:
        """Return a larger pilot on the same inputs."""
        # Rare events decide where no curve is stated.
        rarer = 1 if self.claim.curve is not None or pilot.arms.batch < _CHEAP else _RARER
        choose = min(_MORE * pilot.n * rarer, self._runs(pilot.arms))
        learn = max(0, _MORE * pilot.n - len(pilot.rows[0]))
        return self.pilot(pilot.arms, learn, choose, before=pilot, thorough=True)

    def count(self, pilot: FixedEvents) -> Measurement | None:
        """Count the events on fresh runs; return None if runs turn out to depend on each other.

        The counts are looked at twice, so that a gross violation costs few runs.
        """
        # A suspicion is worth all runs where rare events decide. Below a curve, what a pilot sees the planned runs see.
        suspected = pilot.suspect and self.claim.curve is None
        n = min(self.most, pilot.arms.most) if suspected else self._runs(pilot.arms)
        first = max(1, n // _FIRST)
        looks = ((first, first), (n, n))

        made, hits = list[tuple[int, int]](), _Hits(pilot=pilot)

        def draw(arm: int, runs: int) -> Iterator[FloatArray]:
            # Several batches of each look, so that draws that the runs of a batch share would show.
            several = min(pilot.arms.batch, max(_ROWS, runs // _CALLS))
            for parts in self.drawn(replace(pilot.counted, batch=several), arm, runs):
                rows = pilot.schema.matrix(parts)
                made.append((arm, len(rows)))
                yield rows

        trials = Trials(draw=draw, looks=looks, alpha=self.alpha)
        measured: Measurement = trials.count(hits, partial(self._measured, pilot, hits), partial(refutes, self.claim))
        # Dependent runs would make every bound wrong; the test costs more than it is worth elsewhere.
        refuted = refutes(self.claim, measured)

        def again(arm: int, number: int) -> FloatArray:
            return pilot.schema.matrix(pilot.arms.draw(arm, _ROWS, GUARD + 2 * number + arm))

        if refuted and (_overdispersed(made, hits.found) or dependent(pilot.event.score, again)):
            return None
        return measured if refuted else replace(measured, detectable=self.detectable(n))

    def detectable(self, runs: int) -> float | None:
        """The smallest true epsilon at which this number of runs of each arm refutes the claim with probability 0.9, if
        the pilot finds the best score and threshold; None if no epsilon in reach suffices.
        """
        return _detectable(self.claim.curve, self.claim.epsilon, self.claim.delta, self.share, runs)

    @property
    def share(self) -> float:
        """The significance level of one event at the last of two looks."""
        return self.alpha / (2 if self.claim.curve is None else 4)

    def _runs(self, arms: Arms) -> int:
        """As many runs of each arm as the claim needs, and as their cost allows."""
        most = min(self.most, arms.most)
        wanted = wanted_epsilon(self.claim) if self.wanted is None else self.wanted

        def few(runs: int) -> bool:
            return (found := self.detectable(runs)) is None or found > wanted

        runs = min(_FEWEST, most)
        while runs < most and few(runs):
            runs = min(2 * runs, most)
        if runs > _FEWEST and not few(runs):
            runs = next(less for less in (5 * runs // 8, 3 * runs // 4, runs) if not few(less))
        return runs

    def _look(self, arms: Arms, out: FloatArray, within: FloatArray) -> None:
        self.different = self.different or any(bool((side != out[0]).any()) for side in (out, within))

    def _against_curve(self, scored: Sequence[ScoredEvent], runs: int) -> _CurveEvent:
        """The score and threshold that lie farthest below the stated curve; where none does, the threshold at which a
        violation would be refuted by the fewest runs.
        """
        assert self.claim.curve is not None
        found = [self._cut(*one) for one in scored]
        # Of scores that do about as well, the one with the fewest parameters learnt least by chance.
        _, event, fpr, fnr = max(found, key=lambda one: one[0] + isinstance(one[1].score, SampledShift))
        return _CurveEvent(event, tangent_at(self.claim.curve, fpr, fnr, runs))

    def _against_epsilon(self, scored: Sequence[ScoredEvent], plan: CountingPlan) -> Event:
        """The score and threshold with the largest bound on epsilon that is expected of the counted runs."""
        aim = best_rate(None, self.claim.epsilon, self.claim.delta, self.share, plan.trials)
        found: list[tuple[float, Event]] = []
        for event, member, nonmember in scored:
            # A threshold that the pilot chose looks better than it is; those of the design do not.
            found.append((_expected(event.cut.threshold, member, nonmember, plan, _DOUBT), event))
            for threshold in (np.quantile(nonmember, 1 - aim), np.quantile(member, aim)):
                cut = Cut(threshold=float(threshold), margin=0.0, bound=0.0)
                bound = _expected(cut.threshold, member, nonmember, plan, _CAUTION)
                found.append((bound, Event(score=event.score, cut=replace(cut, bound=bound))))
        bound, event = max(found, key=lambda one: one[0])
        return replace(event, cut=replace(event.cut, bound=bound))

    def _farther_out(self, event: Event, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
        """The threshold of a score with the largest bound on epsilon if scores are normal: it is rarer than a pilot's
        own counts show. A curve that is stated decides by an event of its own.
        """
        spread = float(nonmember.std()), float(member.std())
        if not min(spread) > 0:
            return event
        rates = np.array(_FPRS)
        thresholds = float(nonmember.mean()) - spread[0] * ndtri(rates)
        missed = ndtr((thresholds - float(member.mean())) / spread[1])
        highs = upper_bound(np.floor(np.stack([rates, missed]) * plan.trials), plan.trials, plan.alpha / 2)
        bounds = privacy_loss(highs[0], highs[1], plan.delta)
        far = int(np.argmax(bounds))
        return replace(event, cut=Cut(threshold=float(thresholds[far]), margin=0.0, bound=float(bounds[far])))

    def _cut(self, event: Event, member: FloatArray, nonmember: FloatArray) -> tuple[float, Event, float, float]:
        curve = self.claim.curve
        assert curve is not None
        cuts, below_in, below_out = below_cuts(member, nonmember)
        # Half a count more, because a rate of 0 would have no spread and an infinite margin.
        fpr = (len(nonmember) - below_out + 0.5) / (len(nonmember) + 1)
        fnr = (below_in + 0.5) / (len(member) + 1)
        margins = np.asarray(margin(curve, fpr, fnr, len(member)))
        aim = best_rate(curve, self.claim.epsilon, self.claim.delta, self.share)
        # A rate of a few counts says nothing, unless the other one is small too.
        rates = np.stack([fpr, fnr])
        known = ((rates * len(member) >= _FEWEST_HITS) | (rates[::-1] < _SMALL)).all(0)
        margins = np.where(known, margins, -np.inf)
        at = int(np.argmin(np.where(known, np.abs(fpr - aim), np.inf)))
        most = int(np.argmax(margins))
        # The best of many thresholds looks better than it is.
        at = most if margins[most] > max(_MARGIN, margins[at] + _BETTER) else at
        cut = Cut(threshold=float(cuts[at]), margin=float(margins[at]), bound=0.0)
        return float(margins[at]), replace(event, cut=cut, contrast=None), float(fpr[at]), float(fnr[at])

    def _rank(self, event: Event, out: int, within: int, n: int) -> tuple[float, bool]:
        """How promising an event is by its counts of ``n`` runs of each arm, and whether they speak for a violation."""
        claim = self.claim
        if claim.curve is not None:
            return event.cut.margin, event.cut.margin > _MARGIN / 2
        least = -math.log(self.alpha / 2) * math.exp(min(claim.epsilon, 700.0)) / self.most
        chances = [1.0]
        for few, many in ((out, within), (n - within, n - out)):
            counts = (few, many - n * claim.delta, claim.epsilon)
            if many / n > max(least, claim.delta) and _chance_of(*counts, more=True) > _CLEAR:
                chances.append(_chance_of(*counts, more=False))
        return event.cut.bound, min(chances) < _LIKELY

    def _measured(self, pilot: FixedEvents, hits: "_Hits", counted: Counted[Hits]) -> Measurement:
        claim, n = self.claim, counted.n1
        shared: dict[str, Any] = {
            "setting": Setting.claimed(claim),
            "delta": claim.delta,
            "threshold_policy": "event fixed on pilot runs",
            "epsilon": claim.epsilon,
        }

        def counts(name: str, event: Event) -> dict[str, Any]:
            out, within = (getattr(side, name) for side in (counted.out, counted.within))
            alpha = counted.alpha if pilot.curve is None else counted.alpha / 2
            errors = ErrorCounts(
                threshold=event.cut.threshold, false_positives=out, false_negatives=n - within, n0=n, n1=n, alpha=alpha
            )
            words = f"everything that the adversary receives, {pilot.arms.words}; event {event}"
            return {"counts": errors, "witness": words, **shared}

        if pilot.curve is not None and pilot.curve.tangent is None:
            of_curve = clopper_pearson_of_counts(curve=claim.curve, **counts("curve", pilot.curve.event))
            if refutes(claim, of_curve):
                return replace(of_curve, alpha=counted.alpha)
        if (rule := pilot.epsilon.rule) is not None:
            given = counts("epsilon", pilot.epsilon)
            out, within = (EventGuesses(side.epsilon, side.without) for side in (counted.out, counted.within))
            # How the hits lie in the batches is another thing in each audit.
            seed = digest(repr(hits.found).encode())
            guesses = by_coins(out, counted.n0, within, counted.n1, given.pop("setting"), seed=seed)
            errors = given.pop("counts")
            found = guess_odds_of_counts(
                guesses, alpha=errors.alpha * (1 - FAILS), sides=rule.sides, threshold=errors.threshold, **given
            )
            # The counts of all runs, of which coins took most.
            found = replace(found, **{one.name: getattr(errors, one.name) for one in fields(ErrorCounts)})
        elif pilot.epsilon.contrast is not None:
            found = event_ratio_of_counts(contrast=pilot.epsilon.contrast, **counts("epsilon", pilot.epsilon))
        else:
            found = clopper_pearson_of_counts(curve=claim.curve, **counts("epsilon", pilot.epsilon))
        found = replace(found, alpha=counted.alpha)
        if pilot.curve is None or (tangent := pilot.curve.tangent) is None or refutes(claim, found):
            return found
        known = counts("curve", pilot.curve.event)
        return below_tangent(found, known["counts"], tangent, known["witness"])


def tangent_at(curve: Curve | None, fpr: float, fnr: float, runs: int) -> Tangent | None:
    """Return the tangent of a curve by which an event with these error rates is tested; None without a curve, and for
    rare errors, for which two separate bounds are stronger.
    """
    if curve is None or not fpr < 1 or min(fpr, fnr) * runs < _FEWEST_OF_TANGENT:
        return None
    found = Tangent.at(curve, fpr)
    return found if found.epsilon < _LARGEST_LOSS else None


def below_tangent(found: Measurement, errors: ErrorCounts, tangent: Tangent, witness: str) -> Measurement:
    """Return a measurement of epsilon, extended by a test of another event against a tangent of the stated curve, at
    the level of these counts. If that event lies below the tangent, counts and witness are replaced by those of that
    event.
    """
    if not under_tangent(errors, tangent):
        return replace(found, below_curve=False, tangent=tangent)
    return replace(
        found,
        threshold=errors.threshold,
        false_positives=errors.false_positives,
        false_negatives=errors.false_negatives,
        n0=errors.n0,
        n1=errors.n1,
        fpr_high=None,
        fnr_high=None,
        estimate=None,
        below_curve=True,
        tangent=tangent,
        witness=witness,
    )


def bound_result(check: Check, claim: Claim, measured: Measurement, words: str) -> CheckResult:
    """Return the result of a check that compares a measured bound with the claim: with its epsilon, or with its stated
    curve if that is refuted. ``words``: how the bound on epsilon was measured.
    """
    result = check.at_most(measured.epsilon_low, claim.epsilon, unit="epsilon", witness=words, evidence=measured)
    if not refutes(claim, measured) or measured.epsilon_low > claim.epsilon:
        return result
    if (tangent := measured.tangent) is not None:
        low = max(_bound_at(measured, tangent), math.nextafter(tangent.epsilon, math.inf))
        words = f"tested against the stated curve in {measured.n1} runs per arm, {measured.witness}"
        return check.at_most(
            low, tangent.epsilon, unit=f"epsilon at delta {tangent.delta:.3g}", witness=words, evidence=measured
        )
    fpr, fnr = measured.fpr_high or 0.0, measured.fnr_high or 0.0
    allowed = 0.0 if claim.curve is None else float(np.asarray(claim.curve.fnr(fpr)))
    words = f"tested against the stated curve, {measured.witness}"
    return check.at_least(fnr, allowed, unit=f"FNR at FPR {fpr:.3g}", witness=words, evidence=measured)


def _bound_at(measured: Measurement, tangent: Tangent) -> float:
    """The lower bound on epsilon at the delta of a tangent, at the level at which it was tested."""
    counts = {one.name: getattr(measured, one.name) for one in fields(ErrorCounts)}
    return tangent_low(ErrorCounts(**counts | {"alpha": measured.alpha / 2}), tangent)


def dependent(score: Score, again: Callable[[int, int], FloatArray]) -> bool:
    """Return whether runs of one batch depend on each other, or a batch on earlier ones; then no bound holds.

    ``again``: (arm, number) -> the rows of a batch of runs, the same for equal numbers.
    """
    for arm in (0, 1):
        batches = [again(arm, number) for number in range(_CALLS)]
        if not np.array_equal(batches[0], again(arm, 0)):
            return True
        scores = np.stack([score.score(one) for one in batches])[..., None]
        if float(call_effect(scores).min()) < _DEPENDENT:
            return True
    return False


@dataclass(kw_only=True)
class _Hits:
    """The hits of a pilot's events, batch by batch."""

    pilot: FixedEvents
    found: list[Hits] = field(default_factory=list)

    def guesses(self, outputs: NDArray[Any]) -> Hits:
        hits = self.pilot.guesses(outputs)
        self.found.append(hits)
        return hits


def _overdispersed(made: Sequence[tuple[int, int]], found: Sequence[Hits]) -> bool:
    """Whether hits vary more between batches than those of independent runs, as where a batch shares a draw.

    Args:
        made: the arm and the runs of each batch.
    """
    for arm in (0, 1):
        sizes = np.array([runs for side, runs in made if side == arm], dtype=np.float64)
        for event in range(len(Hits._fields)):
            hits = np.array([one[event] for (side, _), one in zip(made, found, strict=True) if side == arm])
            rate = hits.sum() / sizes.sum()
            if 0 < rate < 1 and len(sizes) > 1:
                squares = float(((hits - rate * sizes) ** 2 / (sizes * rate * (1 - rate))).sum())
                # Few expected hits have heavier tails than a chi-squared number.
                if chi2.sf(squares / _HEAVIER, len(sizes) - 1) < _DEPENDENT:
                    return True
    return False


def two_steps(claim: Claim) -> Claim | None:
    """Return what a claim implies for inputs that are two steps of its adjacency apart (group privacy); None if it
    implies nothing.
    """
    delta = claim.delta * (1 + math.exp(min(claim.epsilon, 700.0)))
    return replace(claim, epsilon=2 * claim.epsilon, delta=delta, curve=None) if delta < 1 else None


def of_one_step(measured: Measurement, claim: Claim) -> Measurement:
    """Convert a bound that was measured on inputs two steps apart to a bound for one step.

    With (e, d) for one step, two steps have (2 e, d (1 + exp(e))). What the runs show at this larger delta is a bound
    on 2 e; it is read at the delta that belongs to the bound itself.
    """
    low = measured.epsilon_low / 2
    if measured.fpr_high is not None and measured.fnr_high is not None:
        delta = claim.delta * (1 + math.exp(min(low, 700.0)))
        loss = float(privacy_loss(measured.fpr_high, measured.fnr_high, delta)) if delta < 1 else 0.0
        seen = max(0.0, loss) / 2
        # Above the claim's own epsilon the larger delta counts; at it the test was made.
        low = min(low, max(seen, math.nextafter(claim.epsilon, math.inf) if low > claim.epsilon else 0.0))
    else:
        low = min(low, math.nextafter(claim.epsilon, math.inf))
    detectable = None if measured.detectable is None else measured.detectable / 2
    return replace(measured, epsilon_low=low, delta=claim.delta, below_curve=None, detectable=detectable)


def wanted_epsilon(claim: Claim) -> float:
    """Return the true epsilon of a violation that trials should detect: slightly more than the claimed epsilon if the
    claim's curve is tested. If only (epsilon, delta) is tested, rare events decide, and the value is below the limit of
    weak tests.
    """
    if claim.curve is not None:
        return (_WANTED if isinstance(claim.curve, GaussianCurve) else _WANTED_OF_PROFILE) * claim.epsilon
    return _WEAK * max(2 * claim.epsilon, claim.epsilon + 1)


@lru_cache(maxsize=1024)
def _detectable(curve: Curve | None, epsilon: float, delta: float, alpha: float, runs: int) -> float | None:
    found = [_at_rate(curve, epsilon, delta, alpha, runs, rate) for rate in _FPRS]
    return min((one for one in found if one is not None), default=None)


@lru_cache(maxsize=1024)
def best_rate(curve: Curve | None, epsilon: float, delta: float, alpha: float, runs: int = 2**16) -> float:
    """Return the false-positive rate at which the smallest violation is refuted."""
    return min(_FPRS, key=lambda rate: _at_rate(curve, epsilon, delta, alpha, runs, rate) or math.inf)


def _at_rate(curve: Curve | None, epsilon: float, delta: float, alpha: float, runs: int, rate: float) -> float | None:
    """The smallest true epsilon that is refuted at one false-positive rate."""
    if rate * runs < 1:
        return None
    tangent = None if curve is None else tangent_at(curve, rate, float(curve.fnr(rate)), runs)
    if curve is not None and tangent is not None:
        return _violation(curve, epsilon, delta, rate, refuted_fnr(tangent, rate, runs, alpha))
    found = minimum_detectable_epsilon(
        n0=runs, n1=runs, alpha=alpha, delta=delta, fpr=rate, curve=curve, epsilon=epsilon
    )
    if curve is None:
        both = found, detectable_at(epsilon, delta, alpha, runs, rate)
        return min((one for one in both if one is not None), default=None)
    if found is None or isinstance(curve, GaussianCurve) or delta == 0:
        return found
    fnr = float(GaussianCurve(mu_from_epsilon(found, delta)).fnr(rate))
    return _violation(curve, epsilon, delta, rate, fnr)


def _violation(curve: Curve, epsilon: float, delta: float, fpr: float, fnr: float) -> float | None:
    """The true epsilon of a violation that has these error rates: of a Gaussian mechanism where the curve is one, else
    of the mechanism whose losses are as many times as large as those that the curve states. None beyond reach.
    """
    if fnr <= 0:
        return None
    if isinstance(curve, GaussianCurve):
        mu = float(ndtri(1 - fpr) - ndtri(fnr))
        return epsilon_from_mu(mu, delta) if delta > 0 else None

    def allowed(factor: float) -> bool:
        return float(curve.fnr(fpr, losses=factor)) > fnr

    factor = crossing(allowed, low=1.0, high=_LARGEST_FACTOR, relative=1e-4)[1]
    return None if factor >= _LARGEST_FACTOR else factor * epsilon


def _guessing(event: Event, member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Event:
    """The event, or guesses of both inputs by the same score where these are expected to show more."""
    found = [best_rule(member, nonmember, plan)]
    spread = float(nonmember.std()), float(member.std())
    if min(spread) > 0:
        # If scores are normal, rarer guesses than a pilot's own counts show; as many of either input.
        rates = np.array(_FPRS[1:])
        highs = float(nonmember.mean()) - spread[0] * ndtri(rates)
        lows = float(member.mean()) + spread[1] * ndtri(rates)
        right = ndtr((float(member.mean()) - highs) / spread[1]) + ndtr((lows - float(nonmember.mean())) / spread[0])
        bounds = np.where(lows <= highs, expected_bound(right, 2 * rates, plan, fair_coins=True, sides=2), -np.inf)
        far = int(np.argmax(bounds))
        if bounds[far] > -math.inf:
            found.append((GuessRule(high=float(highs[far]), low=float(lows[far])), float(bounds[far])))
    rule, bound = max(found, key=lambda one: one[1])
    if bound <= event.cut.bound:
        return event
    return replace(event, cut=Cut(threshold=rule.threshold, margin=0.0, bound=bound), contrast=None, rule=rule)


def _expected(threshold: float, member: FloatArray, nonmember: FloatArray, plan: CountingPlan, caution: float) -> float:
    """The bound on epsilon that is expected of the counted runs, at rates as bad as the pilot's allow at a level."""
    counts = (int((nonmember > threshold).sum()), int((member <= threshold).sum()))
    rates = [upper_bound(k, len(side), caution) for k, side in zip(counts, (nonmember, member), strict=True)]
    highs = [float(upper_bound(np.floor(rate * plan.trials), plan.trials, plan.alpha / 2)) for rate in rates]
    return float(privacy_loss(highs[0], highs[1], plan.delta))


def _chance_of(few: int, many: float, epsilon: float, *, more: bool) -> float:
    """The probability at the claim of so few hits of the rarer arm or fewer, or of so many or more, given all hits."""
    total, share = few + math.floor(max(0.0, many)), 1 / (1 + math.exp(min(epsilon, 700.0)))
    return float(binom.sf(few - 1, total, share) if more else binom.cdf(few, total, share))


def _of_rounds(schema: Schema, rounds: Mapping[str, int], out: FloatArray, within: FloatArray) -> Iterator[Score]:
    """Likelihood ratios of all rounds' numbers of one channel, for rounds that are independent and that are not."""
    for name, width in rounds.items():
        if name not in schema.widths:
            continue
        where = schema.places(name)
        places = np.arange(where.start, where.stop)
        for bins in _BINS if len(out) >= _FINE else _BINS[:2]:
            yield _Named(name, learn_marginals(within, out, coordinates(places), bins))
        if (shift := fitted_shift(name, places[::width], out, within)) is not None:
            yield shift
        yield from fitted_directions(name, places[::width], out, within)


@dataclass(frozen=True)
class _Named:
    """A score of all rounds' numbers of one part."""

    part: str
    score_of: Score

    def __str__(self) -> str:
        return f"{self.score_of} ({self.part}, all rounds)"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.score_of.score(outputs)


@dataclass(frozen=True, eq=False)
class SampledShift:
    """A score: the likelihood ratio of independent rounds, in each of which the Gaussian noise is shifted with a given
    probability.

    Args:
        places: (T,), of the rounds' numbers in the outputs.
        centre, spread: (T,), of the noise without the unit.
        shift: (T,), in units of the spread; ``rate``: the probability.
    """

    part: str
    places: IntArray
    centre: FloatArray
    spread: FloatArray
    shift: FloatArray
    rate: float

    def __str__(self) -> str:
        return (
            f"likelihood ratio of {self.part} in {len(self.places)} rounds, for a Gaussian shift with probability "
            f"{self.rate:.3g} in each"
        )

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        rows = (np.asarray(outputs[:, self.places], dtype=np.float64) - self.centre) / self.spread
        losses = np.clip(rows * self.shift - self.shift**2 / 2, -600, 600)
        with np.errstate(divide="ignore"):
            ratios = np.log1p(self.rate * np.expm1(losses))
        return np.asarray(np.maximum(ratios, -600).sum(axis=1), dtype=np.float64)


def fitted_shift(name: str, places: IntArray, out: FloatArray, within: FloatArray) -> SampledShift | None:
    """Fit the shift and its probability to pilot outputs by expectation maximisation; None if the outputs do not vary.

    All rounds have one probability, and one shift up to its sign.
    """
    base = out[:, places]
    centre, spread = base.mean(axis=0), base.std(axis=0)
    if not (spread > 0).all() or not np.isfinite(spread).all():
        return None
    rows = np.clip((within[:, places] - centre) / spread, -1e6, 1e6)
    signs = np.where(rows.mean(axis=0) < 0, -1.0, 1.0)
    values = (rows * signs).ravel()[:_POOLED]
    first, second = float(values.mean()), float((values**2).mean() - 1)
    shift = second / first if first > 0 and second > first**2 else max(first, 1e-3)
    rate = min(1.0, max(first / shift, 1e-3))
    for _ in range(_STEPS):
        odds = rate * np.exp(np.clip(shift * values - shift**2 / 2, -600, 600))
        belongs = odds / (odds + 1 - rate)
        rate = min(1.0, max(float(belongs.mean()), 1e-4))
        shift = float((belongs * values).sum() / max(float(belongs.sum()), 1e-12))
    return SampledShift(name, places, centre, spread, shift * signs, rate)


@dataclass(frozen=True, eq=False)
class LinearScore:
    """A score that sums the rounds' numbers with ``weights (T,)``, for noise that is correlated between rounds.

    ``places``: (T,), of the rounds' numbers in the outputs.
    """

    part: str
    places: IntArray
    weights: FloatArray

    def __str__(self) -> str:
        return f"likelihood ratio of {self.part} in {len(self.places)} rounds, for correlated Gaussian noise"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(outputs[:, self.places] @ self.weights, dtype=np.float64)


def fitted_directions(name: str, places: IntArray, out: FloatArray, within: FloatArray) -> Iterator[LinearScore]:
    """Fit Fisher's linear discriminant to pilot outputs: to the rounds' numbers, and to their cumulative sums, which
    the models contain. Return None for a single round, or if the outputs do not vary.

    The covariance is shrunk towards its diagonal by the share of Schaefer and Strimmer (2005) that is expected to err
    the least: noise may be independent from round to round, or from model to model.
    """
    if len(places) < 2:
        return
    rounds = [side[:, places] for side in (out, within)]
    if (weights := _discriminant(*rounds)) is not None:
        yield LinearScore(name, places, weights)
    if (weights := _discriminant(*(side.cumsum(axis=1) for side in rounds))) is not None:
        yield LinearScore(name, places, weights[::-1].cumsum()[::-1])


def _discriminant(out: FloatArray, within: FloatArray) -> FloatArray | None:
    """The weights ``(T,)`` of the discriminant of numbers ``(runs, T)``; None where one does not scatter."""
    spread = out.std(axis=0)
    if not ((spread > 0).all() and np.isfinite(spread).all()):
        return None
    move = (within.mean(axis=0) - out.mean(axis=0)) / spread
    rows = np.concatenate([(side - side.mean(axis=0)) / spread for side in (out, within)])
    covariance = rows.T @ rows / len(rows)
    errors = np.square(rows).T @ np.square(rows) / len(rows) - np.square(covariance)
    apart = ~np.eye(len(spread), dtype=bool)
    share = min(1.0, float(errors[apart].sum()) / (len(rows) * max(float(np.square(covariance[apart]).sum()), 1e-300)))
    shrunk = covariance * np.where(apart, 1 - share, 1.0) + 1e-9 * np.eye(len(spread))
    return np.asarray(np.linalg.solve(shrunk, move) / spread, dtype=np.float64)


_OF_ONE_PART = (_Named, SampledShift, LinearScore)
