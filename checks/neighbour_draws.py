"""Count an event in draws on two data sets that are neighbours, or two steps apart, and compare the counts with one
privacy claim.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.binomial import ErrorCounts, largest_certifiable_epsilon, privacy_loss
from ..audit.check import PREPARATION, Check, CheckResult
from ..audit.claim import Adjacency, Claim
from ..audit.curve import Tangent
from ..audit.estimators.clopper_pearson import clopper_pearson_of_counts
from ..audit.estimators.event_ratio import under_tangent
from ..audit.estimators.guess_odds import EventGuesses
from ..audit.evidence import Setting
from ..audit.finding import refutes, weak_beyond
from ..audit.ledger import SUITE
from ..audit.measurement import Measurement
from ..audit.mechanism.scores import Score
from ..audit.mechanism.search import Event
from ..audit.mechanism.trials import Counted, Trials, scored_events
from ..audit.threshold import CountingPlan
from ..fl.plan import Plan
from ..fl.preparation import Leaves, Pipeline, PreparedData
from ..fl.protection import Protection
from ..fl.task import Task
from .arms import TwoArms, below_tangent, bound_result, dependent, of_one_step, tangent_at
from .events import cautious_rates, likely_counts
from .records import unit_rows

_ALPHA = SUITE.level("preparation")
SECONDS = 30.0
"""CPU seconds of one search or of the draws of one arm, at most."""
_COUNTED, _MOST = 512, 2**17
"""Draws of each arm that are counted, at least and at most."""
_STATED = 2**20
"""Draws that are said to be enough, at most."""
_UNUSED = 2**40
"""The same where none is made, because nothing is drawn."""
_SPECIAL = 5
"""Numbers of a draw that are scores by themselves: the first ones."""
_FAVOUR = 2.0
"""Standard errors by which pilot rates may favour a violation before counting is futile."""
_SLACK = 0.3
"""Loss of promise for which a summary that was given is counted and no learnt score."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparationSetup:
    """A claim about a federation whose data are prepared before training.

    Args:
        pipeline: of the federation that is run, with the claim's own records.
        plan: returns the plan of a task.
        protection: returns the protection that the defense prepares for a plan, or why runs under it are no evidence.
        clients, samples: of the federation that is run, at most.
        most: runs of each arm, at most.
    """

    pipeline: Pipeline
    plan: Callable[[Task], Plan]
    protection: Callable[[Plan], Protection | str]
    claim: Claim
    clients: int
    samples: int
    most: int
    seed: int

    @cached_property
    def base(self) -> PreparedData:
        """The unchanged records after the preparation."""
        return self.pipeline.draw(self.pipeline.records).data

    @cached_property
    def held(self) -> tuple[Tensor, ...]:
        """The rows that each client of the claim's own federation holds."""
        return self.pipeline.rows(self.base)[: self.pipeline.clients]

    def held_in(self, data: PreparedData) -> tuple[Tensor, ...]:
        """The rows that the clients in the runs hold."""
        rows = self.held if self.pipeline.keeps_rows(data) else self.pipeline.rows(data)
        return tuple(part[: self.samples] for part in rows[: self.clients])

    @cached_property
    def unit(self) -> Tensor:
        """The records of the unit by which neighbouring data sets differ."""
        rows = self.held[0][: self.samples] if len(self.held[0]) else self.held[0]
        # Where rows are no records, any record will do.
        known = len(self.base.dataset.train_labels) == len(self.pipeline.records.train_labels)
        return unit_rows(self.claim, self.pipeline.records, rows if known else torch.zeros(1, dtype=torch.int64))

    def published(self, data: PreparedData) -> Leaves:
        """The published values of prepared data, without those that an additional unit changes anyway under
        add/remove.
        """
        leaves = data.leaves()
        if data.parts is not None:
            leaves["rows of each client"] = np.array([len(part) for part in data.parts], dtype=np.float64)
        if self.claim.adjacency is Adjacency.ADD_REMOVE:
            # That one unit more or less changes them is no secret of this claim.
            leaves = {name: leaf for name, leaf in leaves.items() if name not in ("rows", "rows of each client")}
        return leaves


@dataclass(kw_only=True, eq=False)
class DrawCounter:
    """Counts of an event in preparations of two data sets that are ``apart`` steps of the adjacency from each other."""

    setup: PreparationSetup
    apart: int
    words: str

    @property
    def delta(self) -> float:
        """The delta that the claim implies for two data sets that are ``apart`` steps from each other (group
        privacy).
        """
        claim = self.setup.claim
        return claim.delta if self.apart == 1 else claim.delta * (1 + math.exp(min(claim.epsilon, 300.0)))

    @property
    def nothing(self) -> str:
        """The reason why the claim implies nothing about data sets ``apart`` steps from each other; empty if it implies
        something.
        """
        return (
            (
                "not looked at: the two data sets are two steps apart, and at this epsilon group privacy bounds "
                f"nothing for them ({self.words})"
            )
            if self.delta >= 1
            else ""
        )

    @property
    def limit(self) -> float:
        """The epsilon that the claim implies for two data sets that are ``apart`` steps from each other."""
        return self.setup.claim.epsilon * self.apart

    def needed(self) -> int:
        """The number of draws per arm with which an event without errors refutes the claim."""
        n = _COUNTED
        while n < _UNUSED and largest_certifiable_epsilon(n, n, self.delta, _ALPHA) <= self.limit:
            n *= 2
        return n

    def certain(self, hits: Callable[[int, int], int], random: bool, seconds: float) -> CheckResult:
        """The result for a difference that no noise hides.

        Args:
            hits: (arm, draws) -> in how many of them the value is that of arm 1.
            random: whether draws have to be made, because something is drawn.
        """
        if self.nothing:
            return PREPARATION.skipped(self.nothing)
        needed = self.needed()
        if random and 2 * needed * seconds > 4 * SECONDS:
            words = f"{self.words}; no noise hides the difference, but a test needs {needed:,} draws"
            return PREPARATION.failed(words)
        out, within = (hits(arm, needed) for arm in (0, 1))
        found = self.of_counts(PREPARATION, out, within, needed)
        if found.passed and (out, within) == (0, needed):
            return PREPARATION.failed(
                f"{self.words}; the claimed epsilon is so large that no number of draws refutes it"
            )
        return found

    def of_counts(self, check: Check, out: int, within: int, n: int) -> CheckResult:
        """The result for an event that was fixed beforehand, from its counts in ``n`` draws of each arm."""
        return self._stated(check, self.measured(out, within, n, _ALPHA, ""))

    def result(
        self,
        check: Check,
        pilot: Sequence[FloatArray],
        draw: Callable[[int, int], Iterable[FloatArray]],
        again: Callable[[int, int], FloatArray],
        seconds: float,
    ) -> CheckResult:
        """Fix an event on pilot draws of both arms, and count the event in fresh draws.

        Args:
            again: (arm, batch) -> the rows of one batch of draws, the same for equal numbers.
            seconds: that one draw takes.
        """
        if self.nothing:
            return check.skipped(self.nothing)
        setup, afford = self.setup, SECONDS / max(seconds, 1e-9)
        # A few draws more where they make the difference.
        afford = max(afford, self.needed()) if self.needed() < 2 * afford else afford
        most = min(_MOST, setup.most, 2 ** int(math.log2(max(2.0, afford))))
        if most < self.needed():
            return check.skipped(
                f"not looked at: {most:,} draws can be made in each arm, and {self.needed():,} are needed to refute "
                f"epsilon {setup.claim.epsilon:g} ({self.words})"
            )
        plan = CountingPlan(trials=most, delta=self.delta, alpha=_ALPHA, curve=self._curve)
        learn, last = len(pilot[0]) // 2, 3 * len(pilot[0]) // 4
        events = scored_events(pilot[0][:last], pilot[1][:last], plan, learn=learn, more=_special)
        n, tried = len(pilot[0]) - last, list[tuple[tuple[float, float], Event, int, int]]()
        for event, _, _ in events:
            out, within = (int((event.score.score(side[last:]) > event.cut.threshold).sum()) for side in pilot)
            low, high = cautious_rates(within, out, n)
            tried.append(((event.cut.margin, float(privacy_loss(high, 1 - low, self.delta))), event, within, out))
        promise = max(one[0] for one in tried)
        # Of nearly equal promise a summary that was given: a learnt score may fit the pilot alone.
        given = [one for one in tried if isinstance(one[1].score, Summary) and one[0][0] >= promise[0]]
        given = [one for one in given if one[0][1] >= promise[1] - _SLACK]
        _, best, within, out = max(given or tried, key=lambda one: one[0])
        detects, gaussian = self._detectable(most, bounded=True), self._detectable(most)
        weak = self._weak(detects, gaussian, most) if gaussian > weak_beyond(setup.claim.epsilon) else ""
        tangent = tangent_at(self._curve, out / n, 1 - within / n, most)
        if self._futile(within / n, out / n, n, most, tangent):
            words = f"in {2 * len(pilot[0])} draws no event seemed to violate the claim: {self.words}{weak}"
            return check.at_most(0.0, setup.claim.epsilon, unit="epsilon", witness=words, detects=detects)
        found = self._counted(check, best, draw, most, detects, tangent)
        if found.passed is False and dependent(best.score, again):
            return check.skipped("not looked at: the draws of one batch depend on each other or on earlier batches")
        return replace(found, witness=f"{found.witness}{weak}") if found.passed else found

    @property
    def _curve(self) -> Any:
        return self.setup.claim.curve if self.apart == 1 else None

    def _detectable(self, draws: int, *, bounded: bool = False) -> float:
        """The smallest true epsilon that so many draws of each arm refute with probability 0.9, by the best score;
        infinite where nothing in reach would do.

        ``bounded``: of privacy losses that epsilon bounds, as those of Laplace noise; else of Gaussian noise, or under
        the claim's curve.
        """
        delta, curve = (0.0, None) if bounded else (self.delta, self._curve)
        claim = replace(self.setup.claim, epsilon=self.limit, delta=delta, curve=curve)
        found = TwoArms(claim=claim, alpha=2 * _ALPHA / len(_looks(draws)), most=draws).detectable(draws)
        return math.inf if found is None else found / self.apart

    def _weak(self, detects: float, gaussian: float, draws: int) -> str:
        """What a test finds that is weak for Gaussian noise at least, and how many draws of each arm would do."""
        limit, most = weak_beyond(self.setup.claim.epsilon), draws
        while most < _STATED and self._detectable(most) > limit:
            most *= 2
        first, second = ("no violation" if math.isinf(one) else f"epsilon {one:.3g}" for one in (detects, gaussian))
        words = f"; with probability 0.9, {draws:,} draws in each arm find {first} if privacy losses are bounded and "
        enough = f"{most:,} draws are enough" if most < _STATED else f"more than {_STATED:,} draws are needed"
        return f"{words}{second} if noise is Gaussian, for which {enough}"

    def _counted(
        self,
        check: Check,
        event: Event,
        draw: Callable[[int, int], Iterable[FloatArray]],
        most: int,
        detects: float | None,
        tangent: Tangent | None,
    ) -> CheckResult:
        def read(counted: Counted[EventGuesses]) -> tuple[Measurement, Counted[EventGuesses]]:
            out, within, n = counted.out.second, counted.within.second, counted.n1
            words = f"; event {event}"
            if tangent is None:
                return self.measured(out, within, n, counted.alpha, words), counted
            found = self.measured(out, within, n, counted.alpha / 2, words)
            if refutes(self.setup.claim, found):
                return replace(found, alpha=counted.alpha), counted
            errors = self._errors(out, within, n, counted.alpha / 2)
            return below_tangent(replace(found, alpha=counted.alpha), errors, tangent, found.witness), counted

        def stops(found: tuple[Measurement, Counted[EventGuesses]]) -> bool:
            measured, counted = found
            n = counted.n1
            return refutes(self.setup.claim, measured) or self._futile(
                counted.within.second / n, counted.out.second / n, n, most, tangent
            )

        measured, _ = Trials(draw=draw, looks=_looks(most), alpha=_ALPHA).count(event, read, stops)
        found = self._stated(check, measured)
        return replace(found, detects=detects if found.passed else None)

    def _stated(self, check: Check, measured: Measurement) -> CheckResult:
        words = f"a lower bound from {measured.n0:,} draws in each arm, {measured.witness}"
        return bound_result(check, self.setup.claim, measured, words)

    def _futile(self, p: float, q: float, n: int, most: int, tangent: Tangent | None) -> bool:
        p, q = (rate + sign * _FAVOUR * math.sqrt((rate * (1 - rate) + 1 / n) / n) for rate, sign in ((p, 1), (q, -1)))
        return not self._refutes(min(p, 1.0), max(q, 0.0), most, tangent)

    def _refutes(self, p: float, q: float, n: int, tangent: Tangent | None) -> bool:
        within, out = likely_counts(p, q, n)
        errors = self._errors(out, within, n, _ALPHA)
        if tangent is not None and under_tangent(errors, tangent):
            return True
        if self._curve is not None and errors.fnr_high < float(self._curve.fnr(errors.fpr_high)):
            return True
        return float(privacy_loss(errors.fpr_high, errors.fnr_high, self.delta)) > self.limit

    def _errors(self, out: int, within: int, n: int, alpha: float) -> ErrorCounts:
        return ErrorCounts(threshold=None, false_positives=out, false_negatives=n - within, n0=n, n1=n, alpha=alpha)

    def measured(self, out: int, within: int, n: int, alpha: float, event: str) -> Measurement:
        """The lower bound on the claim's epsilon from counts in ``n`` draws of each arm."""
        claim = self.setup.claim
        found = clopper_pearson_of_counts(
            self._errors(out, within, n, alpha),
            setting=Setting.claimed(claim),
            delta=self.delta,
            threshold_policy="event fixed on separate draws",
            curve=self._curve,
            epsilon=claim.epsilon if self.apart == 1 else None,
            witness=f"{self.words}{event}",
        )
        if self.apart == 1:
            return found
        return replace(
            of_one_step(found, claim),
            estimate=None if found.estimate is None else found.estimate / 2,
            ceiling=None if found.ceiling is None else found.ceiling / 2,
            witness=f"{found.witness}; the bound is halved, because the data sets are two steps apart",
        )


def clock() -> float:
    """Return the time in seconds that limits searches and draws: CPU time plus an eighth of the elapsed time, because
    code may wait for a file or for other processes.
    """
    return time.process_time() + time.perf_counter() / 8


def _looks(most: int) -> tuple[tuple[int, int], ...]:
    """Draws of each arm at which counts are looked at: whenever their number has doubled."""
    return tuple((size, size) for step in range(30) if (size := _COUNTED * 2**step) <= most)


@dataclass(frozen=True)
class Summary:
    """A score that is one of the first columns of a run's summary, or its negative."""

    place: int
    sign: int

    def __str__(self) -> str:
        return f"{'-' if self.sign < 0 else ''}number {self.place} of the summary of one run"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(self.sign * outputs[:, self.place], dtype=np.float64)


def _special(out: NDArray[Any], within: NDArray[Any]) -> Iterator[Score]:
    yield from (Summary(place, sign) for place in range(min(_SPECIAL, out.shape[1])) for sign in (1, -1))
