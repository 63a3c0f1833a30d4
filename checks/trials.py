"""Trials of everything that a claim's observer receives, as the output of one mechanism, on chosen pairs of neighbours.

Choose pairs of neighbouring inputs of a federation: what the claim's unit holds, and what all others hold.

Audit everything that a claim's observer receives as the output of one mechanism, by independent trials.

A federation is run many times with and many times without one unit, with cohorts, lots and noise as the plan and the
defense draw them. Scores are learnt on some runs, an event is fixed on others, and it is counted on fresh ones: the
bound assumes nothing about the defense except that runs are independent. A claim whose pilots show no event that could
refute it costs no more than these.

State the trials of everything that a claim's observer receives as a check of the claim, with their power.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.binomial import ErrorCounts, privacy_loss, upper_bound
from ..audit.check import VIEW, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ..audit.estimators.clopper_pearson import clopper_pearson_of_counts
from ..audit.evidence import Setting
from ..audit.finding import refutes
from ..audit.ledger import SUITE
from ..audit.measurement import Measurement
from ..audit.mechanism.columns import coordinates
from ..audit.mechanism.scores import Marginals, Score, learn_marginals
from ..audit.mechanism.search import Event
from ..audit.mechanism.trial_stream import call_effect
from ..audit.mechanism.trials import Counted, Trials, pilot_events
from ..audit.observer import SHUFFLED
from ..audit.threshold import CountingPlan
from ..fl.canary import Canary
from ..fl.engine import run_federation
from ..fl.laws import ReportLaw
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import FixedGradients, FrozenFederation
from ..fl.streams import Streams, normal
from ..fl.task import Task
from ..fl.training.local import Batch
from .canaries import FAR, absent_row, clients_of_user, in_turn, range_ends, user_shapes, why_not_covered
from .events import cautious_rates, likely_counts, smallest_factor
from .neighbours import ReplaySetup, replay_setup
from .received import ReceivedNumbers, RepeatedNoise

_LONGEST, _LONG, _SHORT = 1e4, 10.0, 0.9
"""Rows in clip norms: two that every clip shortens, and one that none shortens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Two federations that differ by one unit.

    Args:
        canary: what the unit holds in arm 1 and in arm 0.
        direction: (d,) unit vector along which the unit's rows lie.
        words: both inputs, for the witness of a verdict.
        alone: whether all others hold rows of zeros.
        alike: whether all numbers of the unit's row in arm 0 are equal.
    """

    federation: FrozenFederation
    canary: Canary
    direction: Tensor
    words: str
    alone: bool
    alike: bool


def neighbours_of(setup: ReplaySetup) -> Iterator[Neighbours]:
    """Yield pairs of inputs for the claim's unit and adjacency, those first that show most bugs."""
    claim, plan = setup.claim, setup.plan
    length = setup.length / (1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0))
    quiet, loud = (_surrounded(setup, factor) for factor in (0.0, _LONG * length))
    anywhere = normal(Streams(setup.seed).generator("trial direction"), (plan.layout.dim,))
    anywhere = anywhere / torch.linalg.vector_norm(anywhere)
    if claim.unit is Unit.USER:
        yield from _users(setup, quiet, setup.length * _LONG * anywhere)
        return
    if claim.unit is Unit.REPORT or (claim.unit is Unit.CLIENT and claim.adjacency is not Adjacency.ADD_REMOVE):
        law = setup.protection.law(claim.observer, plan, setup.holder)
        if isinstance(law, ReportLaw) or claim.delta == 0:
            for end, other, words in _extremes(setup, law):
                yield _pair(setup, quiet, end, other, words)
    if claim.adjacency is Adjacency.REPLACE_ONE:
        words = f"a row of {_LONG:g} clip norms along all weights, and one of {_SHORT:g}, others with zero rows"
        yield _pair(setup, quiet, setup.length * _LONG * anywhere, setup.length * _SHORT * anywhere, words)
    if claim.rounds > 1:
        yield _changing(setup, quiet, setup.length * _LONG * anywhere)
    along = {"along all weights": anywhere, "along one weight": torch.eye(1, plan.layout.dim).flip(1)[0]}
    for factor, where, federation, others in (
        (_LONGEST, "along all weights", quiet, "zero"),
        (_SHORT, "along one weight", quiet, "zero"),
        (_LONG, "along all weights", loud, "long"),
    ):
        row = setup.length * factor * along[where]
        words = f"a row of {factor:g} clip norms {where}, others with {others} rows"
        yield _pair(setup, federation, row, _without(setup, row), words)


def _users(setup: ReplaySetup, quiet: FrozenFederation, row: Tensor) -> Iterator[Neighbours]:
    """Users of several shapes, present and absent."""
    holders = range(clients_of_user(setup.claim, setup.plan))
    for words, user in user_shapes(row, holders, setup.seed):
        total = torch.cat([rows for _, rows in user.held]).sum(0)
        yield Neighbours(
            federation=quiet,
            canary=user,
            direction=total / torch.linalg.vector_norm(total),
            words=f"a user of {words}, each of {_LONG:g} clip norms along all weights, others with zero rows",
            alone=True,
            alike=False,
        )


def _without(setup: ReplaySetup, row: Tensor) -> Tensor | None:
    """What stands in the place of a row in arm 0."""
    return setup.absent(row) if setup.adds_to_sum else absent_row(row, setup.claim.adjacency)


def _changing(setup: ReplaySetup, quiet: FrozenFederation, row: Tensor) -> Neighbours:
    """A unit whose row changes its sign from round to round, and one whose row stays or is absent: draws that are
    kept for later rounds show the change.
    """
    signs = torch.tensor([1.0, -1.0]).unsqueeze(1)
    absent = row if setup.claim.adjacency is Adjacency.REPLACE_ONE else _without(setup, row)
    words = f"a row of {_LONG:g} clip norms along all weights that changes its sign in every round"
    return _pair(setup, quiet, signs * row, absent, words)


def _surrounded(setup: ReplaySetup, steepness: float) -> FrozenFederation:
    """The federation with cohorts and lots as the plan draws them, and gradients of others of the given length."""
    network, still = setup.task.network, setup.still
    if not isinstance(network, FixedGradients):
        raise TypeError(f"trials need a federation of fixed gradients, got one of {type(network).__name__}")
    task = replace(still.task, network=replace(network, steepness=steepness).sharing(network))
    return replace(still, task=task, rounds=setup.claim.rounds)


def _pair(
    setup: ReplaySetup, federation: FrozenFederation, present: Tensor, absent: Tensor | None, words: str
) -> Neighbours:
    claim = setup.claim
    place = None
    if claim.unit is not Unit.SAMPLE and setup.unaccepted:
        place = setup.checked_clients[0]
    canary = Canary(unit=claim.unit, present=present, absent=absent, client=0, place=place)
    apart = present if absent is None else present - absent
    # Of a row that changes, along the last round's difference: the first may be none.
    apart = apart if apart.ndim == 1 else apart[-1]
    network = federation.task.network
    return Neighbours(
        federation=federation,
        canary=canary,
        direction=apart / torch.linalg.vector_norm(apart),
        words=words,
        alone=isinstance(network, FixedGradients) and not network.steepness,
        alike=absent is not None and bool((absent == absent.flatten()[0]).all()),
    )


def _extremes(setup: ReplaySetup, law: object) -> Iterator[tuple[Tensor, Tensor, str]]:
    """Rows at the ends of a local randomiser's range, and beyond."""
    dim = setup.plan.layout.dim
    low, high = range_ends(law, setup.claim, dim, setup.length)
    middle, turns, zero = (high + low) / 2, in_turn(low, high), torch.zeros(dim)
    if setup.claim.adjacency is Adjacency.ZERO_OUT:
        yield high, torch.zeros(dim), "numbers at one end of the range, and zeros"
        return
    yield high, low, "numbers at one end of the range, and at the other end"
    if setup.claim.rounds > 1:
        yield torch.stack([high, low]), high, "numbers at each end of the range by turns of rounds, and at one end"
    yield high, turns, "numbers at one end of the range, and at both ends in turn"
    half = torch.arange(dim) < dim // 2
    words = "numbers at one end of the range in the first half of the row, and in the second half"
    yield torch.where(half, high, zero), torch.where(half, zero, high), words
    far = [middle + FAR * (one - middle) for one in (high, low)]
    yield far[0], far[1], "numbers far beyond one end of the range, and far beyond the other end"


ALPHA = SUITE.level("trials")
"""Probability, at most, that the trials of one claim refute it although it holds."""
_LEARN, _CHOOSE = 96, 160
"""Runs of each arm from which scores are learnt, and runs on which an event is fixed, at every pair of inputs."""
_MORE = 4
"""Factor by which both are more at the most promising pair."""
_COUNTED = 2048
"""Runs of each arm that are counted, at least."""
_NUMBERS = 2**29
"""Numbers that all runs of one arm make in all steps of all rounds, at most."""
_BATCH = 256
"""Runs of one batch, at most."""
_CLEAR = 0.1
"""Probability below which a pilot's counts rule out that an event breaks the claim."""
_LIKELY, _OPEN = 0.5, 0.8
"""Probabilities of a pilot's counts at the claim below which they speak for an event, and leave it open."""
_FAVOUR = 2.0
"""Standard errors by which counted rates may favour a violation before counting more of them is futile."""
_MARGIN = 3.0
"""Standard deviations below a stated curve from which a pilot speaks for an event."""
_GUARD = 2**20
"""Numbers of batches that show whether runs are independent, and are no evidence, start here."""
_CALLS, _ROWS, _DEPENDENT = 16, 16, 1e-6
"""Batches and runs of each that show whether runs of one batch depend on each other, and the level of that test."""


def _view(setup: ReplaySetup, most: int) -> tuple[CheckResult, ...]:
    """Run the trials of a claim in a federation with cohorts and lots as they are sampled."""
    if most < _COUNTED:
        return (VIEW.skipped(f"the audit allows {most} runs, and {_COUNTED} are needed"),)
    claim, plan = setup.claim, setup.plan
    cost = (plan.clients + 1) * plan.layout.dim * claim.rounds * plan.algorithm.local_steps
    most = min(most, _NUMBERS // cost)
    if most < _COUNTED:
        return (VIEW.skipped(f"{_COUNTED} runs of {cost:,} numbers each are too many"),)
    trials = _Trials(setup=setup, most=most)
    pilots = [one for number, pair in enumerate(neighbours_of(setup)) for one in trials.pilot(number, pair, 1)]
    if (best := _most_promising(pilots)) is not None:
        pilots += (further := trials.pilot(best.number, best.pair, _MORE))
        best = _most_promising(further)
    measured = None if best is None else trials.count(best)
    # A violation would have moved something.
    factor = 1.0 if trials.constant else None
    for one in () if trials.constant else pilots:
        factor = trials.factor(one, below=math.inf if factor is None else factor) or factor
    if best is not None and measured is None:
        words = "runs of one batch depend on each other, or runs leave something behind for later ones"
        result = VIEW.skipped(words)
    else:
        result = _result(trials, measured, None if factor is None else claim.epsilon * factor)
    return (result, *trials.repeats.results())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pilot:
    """An event at a pair of inputs, with its counts ``out`` and ``within`` in ``n`` runs of each arm.

    ``rank``: how promising it is; None where it hardly breaks the claim.
    """

    number: int
    pair: Neighbours
    event: Event
    out: int
    within: int
    n: int
    rank: tuple[float, float] | None


def _most_promising(pilots: Sequence[_Pilot]) -> _Pilot | None:
    ranked = [(one.rank, -place, one) for place, one in enumerate(pilots) if one.rank is not None]
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


@dataclass(frozen=True)
class _OfChannel:
    """A score of one channel's numbers."""

    name: str
    marginals: Marginals

    def __str__(self) -> str:
        return f"likelihood ratio in {self.marginals.bins} bins of {self.name}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.marginals.score(outputs)


@dataclass(kw_only=True)
class _Trials:
    """Runs of one claim.

    ``made`` and ``blocks`` count runs and batches; ``rows`` holds different rows of numbers at each pair of inputs.
    """

    setup: ReplaySetup
    most: int
    made: int = 0
    blocks: int = 0
    grids: dict[str, float] = field(default_factory=dict)
    columns: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[int, set[bytes]] = field(default_factory=dict)
    repeats: RepeatedNoise = field(default_factory=RepeatedNoise)

    @property
    def constant(self) -> bool:
        """Whether all runs at a pair of inputs gave the same numbers."""
        return all(len(rows) == 1 for rows in self.rows.values())

    @cached_property
    def plan(self) -> CountingPlan:
        claim = self.setup.claim
        return CountingPlan(trials=self.most, delta=claim.delta, alpha=ALPHA, curve=claim.curve)

    def pilot(self, number: int, pair: Neighbours, factor: int) -> list[_Pilot]:
        """Learn scores at a pair of inputs, and fix the event of each that is the most likely to break the claim.

        ``factor``: of the runs; from the second time on, an event must be likely to break the claim by its counts.
        """
        learn, choose = _LEARN * factor, self._choose(factor)
        both = [self.drawn(pair, arm, learn + choose) for arm in (0, 1)]
        events = pilot_events(both[0], both[1], self.plan, learn=learn, thorough=factor > 1, more=self._of_channels)
        found = []
        for event in events:
            scores = [event.score.score(side[learn:]) for side in both]
            out, within = (int((side > event.cut.threshold).sum()) for side in scores)
            rank = self._rank(event, out, within, choose, sure=factor > 1)
            found.append(_Pilot(number=number, pair=pair, event=event, out=out, within=within, n=choose, rank=rank))
        return found

    def factor(self, pilot: _Pilot, below: float) -> float | None:
        """The smallest factor of the privacy losses of an event at which counting it refutes the claim, if it is less
        than ``below``.
        """
        rates = cautious_rates(pilot.within, pilot.out, pilot.n)
        return smallest_factor(*rates, partial(self._refutes, n=self.most), below=below)

    def _refutes(self, p: float, q: float, n: int) -> bool:
        """Whether counts of n runs that occur with probability 0.9 refute the claim, for rates p with the unit and q
        without.
        """
        claim = self.setup.claim
        within, out = likely_counts(p, q, n)
        fpr_high, fnr_high = (float(upper_bound(count, n, ALPHA / 2)) for count in (out, n - within))
        if claim.curve is not None and fnr_high < float(claim.curve.fnr(fpr_high)):
            return True
        return float(privacy_loss(fpr_high, fnr_high, claim.delta)) > claim.epsilon

    def _of_channels(self, out: FloatArray, within: FloatArray) -> Iterator[Score]:
        """Likelihood ratios of all rounds' numbers of one channel, as if they were independent."""
        for name, places in self.columns.items():
            for bins in (2, 8):
                yield _OfChannel(name, learn_marginals(within, out, coordinates(np.array(places)), bins))

    def count(self, pilot: _Pilot) -> Measurement | None:
        """Count the event on fresh runs; None where runs turn out to depend on each other.

        The counts are looked at whenever their number has doubled.
        """
        looks = tuple((size, size) for step in range(20) if (size := _COUNTED * 2**step) <= self.most)
        runs = Trials(draw=partial(self._batches, pilot.pair), looks=looks, alpha=ALPHA)
        measured, _ = runs.count(pilot.event, partial(self._read, pilot), self._stops)
        # Dependent runs would make every bound wrong; the test costs more than it is worth elsewhere.
        refuted = refutes(self.setup.claim, measured)
        return None if refuted and self._dependent(pilot) else measured

    def _read(self, pilot: _Pilot, counted: Counted) -> tuple[Measurement, Counted]:
        out, within, n = counted.out.second, counted.within.second, counted.n1
        return self._measured(pilot, out, within, n, counted.alpha), counted

    def _stops(self, found: tuple[Measurement, Counted]) -> bool:
        measured, counted = found
        if refutes(self.setup.claim, measured):
            return True
        return self._futile(counted.out.second, counted.within.second, counted.n1)

    def _futile(self, out: int, within: int, n: int) -> bool:
        """Whether rates that favour a violation as far as the counts of ``n`` runs of each arm allow would be too
        small for all runs to refute the claim.
        """
        p, q = within / n, out / n
        p, q = (rate + sign * _FAVOUR * math.sqrt(rate * (1 - rate) / n) for rate, sign in ((p, 1), (q, -1)))
        return not self._refutes(min(p, 1.0), max(q, 0.0), self.most)

    def _measured(self, pilot: _Pilot, out: int, within: int, n: int, alpha: float) -> Measurement:
        claim, cut = self.setup.claim, pilot.event.cut.threshold
        return clopper_pearson_of_counts(
            ErrorCounts(threshold=cut, false_positives=out, false_negatives=n - within, n0=n, n1=n, alpha=alpha),
            setting=Setting.claimed(claim),
            delta=claim.delta,
            threshold_policy="event fixed on pilot runs",
            curve=claim.curve,
            epsilon=claim.epsilon,
            witness=f"everything that the adversary receives, {pilot.pair.words}; event {pilot.event}",
        )

    def drawn(self, pair: Neighbours, arm: int, runs: int) -> FloatArray:
        """The numbers ``(runs, k)`` of fresh runs."""
        return np.concatenate(list(self._batches(pair, arm, runs)))

    def _choose(self, factor: int) -> int:
        # An event of a large claim is rare without the unit: more runs must show that it is.
        needed = 12 * math.exp(min(self.setup.claim.epsilon, 10.0)) if factor > 1 else 0
        return int(min(self.most // 2, max(_CHOOSE * factor, needed)))

    def _rank(self, event: Event, out: int, within: int, n: int, *, sure: bool) -> tuple[float, float] | None:
        """How promising an event is, by its counts of ``n`` runs of each arm; None where it hardly breaks the claim.

        ``sure``: whether the counts themselves must speak for it, and not only leave it open.
        """
        claim = self.setup.claim
        # In standard deviations of these runs.
        margin = event.cut.margin * math.sqrt(n / self.most)
        if margin > _MARGIN:
            return (1.0, margin)
        least = -math.log(ALPHA / 2) * math.exp(min(claim.epsilon, 700.0)) / self.most
        chances = []
        for few, many in ((out, within), (n - within, n - out)):
            counts = (few, many - n * claim.delta, claim.epsilon)
            if many / n > max(least, claim.delta) and _chance_of(*counts, more=True) > _CLEAR:
                chances.append(_chance_of(*counts, more=False))
        smallest = min(chances, default=1.0)
        return (0.0, -smallest) if smallest < (_LIKELY if sure else _OPEN) else None

    def _batches(self, pair: Neighbours, arm: int, runs: int) -> Iterator[FloatArray]:
        for start in range(0, runs, _BATCH):
            self.blocks += 1
            yield self._run(pair, arm, min(_BATCH, runs - start), self.blocks)

    def _run(self, pair: Neighbours, arm: int, runs: int, block: int) -> FloatArray:
        setup, federation = self.setup, pair.federation
        holder = 0 if setup.claim.unit in HELD_BY_CLIENTS else setup.plan.clients
        holder = holder if pair.canary.place is None else pair.canary.place
        recorder = ReceivedNumbers(
            observer=setup.claim.observer,
            protection=setup.protection,
            holder=holder,
            direction=pair.direction,
            grids=self.grids,
            columns=self.columns,
        )
        final = run_federation(
            federation.task,
            federation.plan,
            setup.protection,
            Streams(setup.seed),
            # Blocks of their own: no run shares a draw with the claim's other runs.
            batch=Batch(replicas=runs, arm=arm, block=2**28 + block),
            canary=pair.canary,
            recorders=[recorder],
            stop_after=federation.rounds,
        )
        self.made += runs
        numbers = recorder.numbers(final)
        if block < _GUARD:
            if pair.alone and arm == 0:
                self.repeats.add(
                    recorder.vectors, np.concatenate(recorder.pool) if pair.alike and recorder.pool else None
                )
            self.rows.setdefault(id(pair), set()).update(row.tobytes() for row in numbers[[0, len(numbers) // 2, -1]])
        return numbers

    def _dependent(self, pilot: _Pilot) -> bool:
        """Whether runs of one batch depend on each other, or a batch on those before it."""
        for arm in (0, 1):
            calls = [self._run(pilot.pair, arm, _ROWS, _GUARD + 2 * call + arm) for call in range(_CALLS)]
            again = self._run(pilot.pair, arm, _ROWS, _GUARD + arm)
            if not np.array_equal(calls[0], again):
                return True
            scores = np.stack([pilot.event.score.score(one) for one in calls])[..., None]
            if float(call_effect(scores).min()) < _DEPENDENT:
                return True
        return False


def _chance_of(few: int, many: float, epsilon: float, *, more: bool) -> float:
    """The probability at the claim of so few hits of the rarer arm or fewer, or of so many or more, given all hits."""
    total, share = few + math.floor(max(0.0, many)), 1 / (1 + math.exp(min(epsilon, 700.0)))
    return float(binom.sf(few - 1, total, share) if more else binom.cdf(few, total, share))


MOST_RUNS = 2**15
"""Runs with and without the unit, at most, each, where nothing else is stated."""


def view_checks(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, most: int = MOST_RUNS, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Run the trials of a claim in a small federation; the first result's ``evidence`` may refute the claim.

    Args:
        plan: of the federation that is run, for which the protection was prepared.
        most: runs with and without the unit, at most, each.
    """
    reason = _why_not(task, plan, protection, claim)
    if reason:
        return (VIEW.skipped(reason),)
    try:
        return _view(replay_setup(task, plan, protection, claim, seed=seed).sampled, most)
    except Exception as error:  # A user's own defense may raise anything, and other checks still apply.
        words = f"the federation could not be run: {type(error).__name__}: {error}"
        return (VIEW.skipped(words),)


def _why_not(task: Task, plan: Plan, protection: Protection, claim: Claim) -> str:
    if reason := why_not_covered(claim):
        return reason
    if claim.rounds > plan.rounds:
        return f"the claim covers {claim.rounds} rounds, of which the federation runs {plan.rounds}"
    added = claim.unit not in HELD_BY_CLIENTS and claim.adjacency is Adjacency.ADD_REMOVE
    if added and (claim.observer.rank >= SHUFFLED.rank or claim.observer.sees_participation):
        return "one client more or less shows by its report alone"
    if (protection.per_sample or claim.unit is Unit.SAMPLE) and task.network.mixes:
        return f"{task.network.mixture}: the gradients of one sample depend on others"
    return ""


def _result(trials: "_Trials", measured: Measurement | None, detects: float | None) -> CheckResult:
    """The check's result; ``measured``: of the counted trials, None where pilots showed no event that could refute the
    claim; ``detects``: the epsilon at which the trials refute the claim with probability 0.9.
    """
    claim = trials.setup.claim
    if measured is None:
        seen = (
            "which all gave the same numbers" if trials.constant else "in which no event is likely to break the claim"
        )
        result = VIEW.at_most(0.0, claim.epsilon, unit="epsilon", witness=f"{trials.made} runs, {seen}")
    elif refutes(claim, measured) and measured.epsilon_low <= claim.epsilon:
        result = _below_curve(claim, measured)
    else:
        words = f"a lower bound, {measured.witness}"
        result = VIEW.at_most(measured.epsilon_low, claim.epsilon, unit="epsilon", witness=words)
    return replace(
        result,
        detects=detects if result.passed else None,
        compared=("everything that the adversary receives, in independent runs with and without the unit",),
        evidence=measured,
    )


def _below_curve(claim: Claim, measured: Measurement) -> CheckResult:
    fpr, fnr = measured.fpr_high or 0.0, measured.fnr_high or 0.0
    allowed = 0.0 if claim.curve is None else float(np.asarray(claim.curve.fnr(fpr)))
    words = f"by the stated curve at FPR {fpr:.3g}, {measured.witness}"
    return VIEW.at_least(fnr, allowed, unit="FNR", witness=words)
