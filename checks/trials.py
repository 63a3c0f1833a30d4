"""Trials of everything that a claim's observer receives, as the output of one mechanism, on chosen pairs of neighbours.

A federation is run many times with and many times without one unit, with cohorts, lots and noise as the plan and the
defense draw them, most of the times with a model of few weights. Scores are learnt on some runs, events are fixed on
others, and counted on fresh ones: the bound assumes nothing about the defense except that runs are independent. The
result is a check of the claim, with its power.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..audit.check import VIEW, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ..audit.finding import refutes
from ..audit.ledger import SUITE
from ..audit.measurement import Measurement
from ..audit.observer import FINAL_MODEL, SHUFFLED
from ..fl.canary import Canary, UserCanary
from ..fl.engine import run_federation
from ..fl.laws import ReportLaw
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import FixedGradients, FixedTrainer, FrozenFederation
from ..fl.streams import Streams, normal
from ..fl.task import Task
from ..fl.training.local import Batch
from .arms import GUARD, Arms, Parts, TwoArms, bound_result
from .canaries import FAR, absent_row, clients_of_user, in_turn, range_ends, user_shapes, why_not_covered
from .measured import quietest
from .neighbours import Inputs, Proposed, ReplaySetup, gradient_direction, replay_setup
from .received import RAW, ReceivedNumbers, RepeatedNoise

_LONGEST, _LONG, _SHORT = 1e4, 10.0, 0.9
"""Rows in clip norms: two that every clip shortens, and one that none shortens."""
_PLACES = 3
"""Clients of the plan whose rows are replaced, at most: a further client may have a setting of its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Two federations that differ by one unit.

    Args:
        inputs: what the runs of arm 0 and of arm 1 are given.
        direction: (d,) unit vector along which the unit's rows lie.
        words: both inputs, for the witness of a verdict.
        alone: whether all others hold rows of zeros.
        holder: the client whose report is kept apart from those of others.
        alike: whether all numbers of the unit's row in arm 0 are equal.
        raw: numbers of an array that are kept as they are.
    """

    federation: FrozenFederation
    inputs: tuple[Inputs, Inputs]
    direction: Tensor
    words: str
    holder: int
    alone: bool = False
    alike: bool = False
    raw: int = RAW


def neighbours_of(setup: ReplaySetup) -> Iterator[Neighbours]:
    """Yield pairs of inputs for the claim's unit and adjacency, starting with those that reveal most bugs."""
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
        words = (
            f"one unit's vector of {_LONG:g} clip norms along all weights, and one of {_SHORT:g}, while others "
            "send zeros"
        )
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
        words = f"one unit's vector of {factor:g} clip norms {where}, while other vectors are {others}"
        yield _pair(setup, federation, row, _without(setup, row), words)
    if claim.unit not in HELD_BY_CLIENTS and claim.adjacency is not Adjacency.ADD_REMOVE:
        for place in setup.checked_clients[:_PLACES]:
            row = setup.length * _LONG * anywhere
            words = f"one unit's vector of {_LONG:g} clip norms along all weights in the place of client {place}"
            yield _pair(setup, quiet, row, _without(setup, row), words, place=place)
    yield from _quietest(setup, quiet)
    yield from _against(setup, length)


def _quietest(setup: ReplaySetup, quiet: FrozenFederation) -> Iterator[Neighbours]:
    """A row along the weights of least noise; none where runs show no noise."""
    if (direction := quietest(setup)) is not None:
        row = (setup.length * _LONG * direction.values).float()
        words = f"one unit's vector of {_LONG:g} clip norms {direction.words}, while others send zeros"
        yield _pair(setup, quiet, row, _without(setup, row), words)


def _against(setup: ReplaySetup, length: float) -> Iterator[Neighbours]:
    """A row against all others, which are equal: what a sum is divided by then moves it too."""
    alike = setup.one_sample
    if alike is None or (towards := gradient_direction(alike)) is None:
        return
    loud = _surrounded(alike, _LONG * length)
    # Longer than all others together, so that it turns their mean around.
    row = -setup.length * _LONGEST * towards
    words = f"one unit's vector of {_LONGEST:g} clip norms opposite to all other vectors, which are long and equal"
    yield _pair(setup, loud, row, _without(setup, row), words)


def _users(setup: ReplaySetup, quiet: FrozenFederation, row: Tensor) -> Iterator[Neighbours]:
    """Users of several shapes, present and absent."""
    holders = range(clients_of_user(setup.claim, setup.plan))
    for words, user in user_shapes(row, holders, setup.seed):
        total = torch.cat([rows for _, rows in user.held]).sum(0)
        yield Neighbours(
            federation=quiet,
            inputs=_arms(user),
            direction=total / torch.linalg.vector_norm(total),
            words=f"a user of {words}, each of {_LONG:g} clip norms along all weights, while others send zeros",
            holder=_holder(setup, None),
            alone=True,
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
    words = f"one unit's vector of {_LONG:g} clip norms along all weights, whose sign changes in every round"
    return _pair(setup, quiet, signs * row, absent, words)


def _surrounded(setup: ReplaySetup, steepness: float) -> FrozenFederation:
    """The federation with cohorts and lots as the plan draws them, and gradients of others of the given length."""
    network, still = setup.task.network, setup.still
    if not isinstance(network, FixedGradients):
        raise TypeError(f"trials need a model with fixed gradients, got {type(network).__name__}")
    task = replace(still.task, network=replace(network, steepness=steepness).sharing(network))
    return replace(still, task=task, rounds=setup.claim.rounds)


def _pair(
    setup: ReplaySetup,
    federation: FrozenFederation,
    present: Tensor,
    absent: Tensor | None,
    words: str,
    place: int | None = None,
) -> Neighbours:
    claim = setup.claim
    if place is None and claim.unit is not Unit.SAMPLE and setup.unaccepted:
        place = setup.checked_clients[0]
    canary = Canary(unit=claim.unit, present=present, absent=absent, client=0, place=place)
    apart = present if absent is None else present - absent
    # Of a row that changes, along the last round's difference: the first may be none.
    apart = apart if apart.ndim == 1 else apart[-1]
    network = federation.task.network
    return Neighbours(
        federation=federation,
        inputs=_arms(canary),
        direction=apart / torch.linalg.vector_norm(apart),
        words=words,
        holder=_holder(setup, canary.place),
        alone=isinstance(network, FixedGradients) and not network.steepness,
        alike=absent is not None and bool((absent == absent.flatten()[0]).all()),
    )


def _holder(setup: ReplaySetup, place: int | None) -> int:
    if place is not None:
        return place
    return 0 if setup.claim.unit in HELD_BY_CLIENTS else setup.plan.clients


def _arms(canary: Canary | UserCanary) -> tuple[Inputs, Inputs]:
    return Inputs(canary=canary, arm=0), Inputs(canary=canary, arm=1)


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
        yield torch.stack([high, low]), high, "numbers at alternating ends of the range from round to round, and at "
        "one end"
    yield high, turns, "numbers at one end of the range, and numbers at alternating ends"
    half = torch.arange(dim) < dim // 2
    words = "numbers at one end of the range in the first half of the vector, and in the second half"
    yield torch.where(half, high, zero), torch.where(half, zero, high), words
    far = [middle + FAR * (one - middle) for one in (high, low)]
    yield far[0], far[1], "numbers far beyond one end of the range, and far beyond the other end"


ALPHA = SUITE.level("trials")
"""Probability, at most, that the trials of one model refute a claim although it holds; two models are tried at most."""
_LEARN, _CHOOSE = 64, 128
"""Runs of each arm from which scores are learnt, and on which events are fixed, at every pair of the audit's model."""
_FEW_WEIGHTS = (384, 512)
"""The same at every pair of inputs of a small model, whose runs cost little."""
_FEW = 16
"""Weights of a model that has few."""
_NUMBERS, _NUMBERS_OF_FEW, _AT_ONCE = 2**28, 2**31, 2**21
"""Numbers that all runs of one arm make in all steps of all rounds at most, of any model and of one of few weights, and
those of one batch.
"""
_LEAST_BATCH, _MOST_BATCH = 64, 2**13
FEWEST_RUNS = 2048
"""Runs of each arm that are counted, at least."""
_KEPT = 256
"""Numbers of an array that are kept as they are where a comparison names the inputs."""
MOST_RUNS = 2**18
"""Runs with and without the unit, at most, each, where nothing else is stated."""


@dataclass(kw_only=True)
class FederationArms:
    """Trials on pairs of federations; values that their releases repeat are kept for the checks of repeated noise."""

    setup: ReplaySetup
    grids: dict[str, float] = field(default_factory=dict)
    repeats: RepeatedNoise = field(default_factory=RepeatedNoise)

    def of(self, pair: Neighbours) -> Arms:
        """Return the runs on the two inputs of one pair of neighbours."""
        plan, rounds = self.setup.plan, dict[str, int]()
        # Gradients of samples are held one by one where a hook sees them.
        rows = plan.largest_lot if self.setup.protection.per_sample else 1
        at_once = (plan.clients + 1) * rows * plan.layout.dim * plan.algorithm.local_steps
        cost = at_once * pair.federation.rounds
        return Arms(
            draw=partial(self._run, pair, rounds),
            words=pair.words,
            batch=min(_MOST_BATCH, max(_LEAST_BATCH, _AT_ONCE // at_once)),
            most=(_NUMBERS_OF_FEW if plan.layout.dim <= _FEW else _NUMBERS) // cost,
            rounds=rounds,
            of_parts=lambda names: partial(self._run, pair, rounds, only=names),
        )

    def _run(
        self,
        pair: Neighbours,
        rounds: dict[str, int],
        arm: int,
        runs: int,
        block: int,
        only: frozenset[str] | None = None,
    ) -> Parts:
        setup, given = self.setup, pair.inputs[arm]
        compares = pair.alone and arm == 0 and block < GUARD
        federation = pair.federation if given.task is None else replace(pair.federation, task=given.task)
        recorder = ReceivedNumbers(
            observer=setup.claim.observer,
            protection=setup.protection,
            holder=pair.holder,
            direction=pair.direction,
            grids=self.grids,
            raw=pair.raw,
            compares=compares,
            only=only,
        )
        final = run_federation(
            federation.task,
            federation.plan,
            setup.protection,
            Streams(setup.seed),
            # Blocks of their own: no run shares a draw with the claim's other runs, nor with those of the other arm.
            batch=Batch(replicas=runs, arm=given.arm, block=2**28 + 2 * block + arm),
            canary=given.canary,
            recorders=[recorder],
            stop_after=federation.rounds,
            executor=FixedTrainer,
        )
        numbers = recorder.numbers(final)
        rounds.update(recorder.widths)
        if compares:
            pool = np.concatenate(recorder.pool) if pair.alike and recorder.pool else None
            self.repeats.add(recorder.vectors, pool)
        return numbers


def proposed_arms(proposed: Proposed) -> Arms:
    """Return the two inputs, with their sampler, that a failed comparison names; numbers of arrays are not reduced,
    because any of them may have changed.
    """
    setup, dim = proposed.setup, proposed.setup.plan.layout.dim
    canary = proposed.present.canary
    place = getattr(canary, "place", None)
    holder = getattr(canary, "client", None) if place is None and setup.claim.unit is Unit.SAMPLE else place
    direction = proposed.direction
    pair = Neighbours(
        federation=replace(setup.still, rounds=setup.claim.rounds),
        inputs=(proposed.without, proposed.present),
        direction=torch.full((dim,), dim**-0.5) if direction is None else direction,
        words=proposed.words,
        holder=_holder(setup, holder),
        raw=_KEPT,
    )
    return FederationArms(setup=setup).of(pair)


def view_checks(
    small: tuple[Task, Plan, Protection, Claim],
    few_weights: tuple[Task, Plan, Protection, Claim] | None = None,
    *,
    most: int = MOST_RUNS,
    seed: int = 0,
) -> tuple[CheckResult, ...]:
    """Run the trials of a claim; the first result's ``evidence`` may refute it.

    Args:
        small: a federation that can be run thousands of times, with the protection that was prepared for it.
        few_weights: the same federation with a model of few weights, which can be run a hundred thousand times; None
            where the claim depends on the model. The first one is then counted itself.
        most: runs with and without the unit, at most, each.
    """
    if most < FEWEST_RUNS:
        return (VIEW.skipped(f"the audit allows {most} runs per arm (audit.trials), and {FEWEST_RUNS} are needed"),)
    reason = _why_not(*small)
    if reason:
        return (VIEW.skipped(reason),)
    try:
        found = _looked_at(small, most, seed, counted=few_weights is None)
        repeats = found.repeats
        if few_weights is not None and (found.measured is None or not refutes(small[3], found.measured)):
            counted = _looked_at(few_weights, most, seed, counted=True)
            # A choice of some weights shows nothing where a model has no more of them.
            found = _looked_at(small, most, seed, counted=True) if counted.trials.constant else counted
            found = replace(found, repeats=repeats)
    except Exception as error:  # A user's own defense may raise anything, and other checks still apply.
        words = f"the federation could not be run: {type(error).__name__}: {error}"
        return (VIEW.skipped(words),)
    return (_result(small[3], found), *found.repeats.results())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Looked:
    """The trials of one federation: what was counted, or why nothing was."""

    trials: TwoArms
    repeats: RepeatedNoise
    measured: Measurement | None = None
    reason: str = ""


def _looked_at(federation: tuple[Task, Plan, Protection, Claim], most: int, seed: int, *, counted: bool) -> _Looked:
    """Run pilots at all pairs of inputs of a federation, and count the most promising events: whatever the pilots show
    with ``counted``, else only where they speak for a violation.
    """
    task, plan, protection, claim = federation
    # Who receives the final model alone would receive a constant, were the model fixed.
    moving = claim.observer.rank == FINAL_MODEL.rank
    setup = replay_setup(task, plan, protection, claim, seed=seed, moving=moving).sampled
    arms, trials = FederationArms(setup=setup), TwoArms(claim=claim, alpha=ALPHA, most=most)
    learn, choose = _FEW_WEIGHTS if plan.layout.dim <= _FEW else (_LEARN, _CHOOSE)
    pilots = [trials.pilot(arms.of(pair), learn, choose) for pair in neighbours_of(setup)]
    found = _Looked(trials=trials, repeats=arms.repeats)
    if trials.constant:
        words = f"in all {trials.made} runs the adversary received the same numbers, which no unit changes"
        return replace(found, reason=words)
    best = trials.best(pilots) if counted else max(pilots, key=lambda pilot: (pilot.suspect, pilot.rank))
    if not counted and not best.suspect:
        return found
    best = trials.deeper(best)
    if not counted and not best.suspect:
        return found
    measured = trials.count(best)
    words = "runs of one batch depend on each other or on earlier runs"
    return replace(found, measured=measured, reason="" if measured else words)


def _why_not(task: Task, plan: Plan, protection: Protection, claim: Claim) -> str:
    if reason := why_not_covered(claim):
        return reason
    if claim.rounds > plan.rounds:
        return f"the claim covers {claim.rounds} rounds, but the federation runs {plan.rounds}"
    added = claim.unit not in HELD_BY_CLIENTS and claim.adjacency is Adjacency.ADD_REMOVE
    if added and (claim.observer.rank >= SHUFFLED.rank or claim.observer.sees_participation):
        return "the number of reports reveals whether a client takes part"
    if (protection.per_sample or claim.unit is Unit.SAMPLE) and task.network.mixes:
        return f"{task.network.mixture}: the gradient of one sample depends on other samples"
    return ""


def _result(claim: Claim, found: _Looked) -> CheckResult:
    """The check's result; its ``detects`` is the epsilon at which the trials refute the claim with probability 0.9."""
    measured = found.measured
    if measured is None:
        return VIEW.skipped(found.reason)
    words = f"a lower bound from {measured.n1} runs with and {measured.n1} without the unit, {measured.witness}"
    result = bound_result(VIEW, claim, measured, words)
    return replace(
        result,
        detects=measured.detectable if result.passed else None,
        compared=("everything that the adversary receives, in independent runs with and without the unit",),
        evidence=measured,
    )
