"""Play a defense's randomised outputs back to a federation in which one person's data differ, and see what else moves.

A run is recorded with everything that the hooks with randomness returned. The same run is made again with one label, or
one row, changed, and the hooks return the recorded outputs. What the observer receives must then be the same: else it
depends on the raw data in a way that no noise covers. What the hooks were given in the second run shows how far the
change moves the inputs of the noise: in the person's own row, and in rows of other people.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Claim, Unit
from ...audit.curve import GaussianCurve
from ...audit.gaussian import epsilon_from_mu
from ...audit.observer import FINAL_MODEL
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, Runs, run_vertical
from ...fl.vertical.law import Noise, VerticalLaw
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalContext, VerticalProtection
from ...fl.vertical.task import VerticalTask
from .pairs import Pair
from .received import Received, all_numbers

RELEASED, MOVE, INDEPENDENT = "released noise alone", "move over noise", "independent noise"
HOOKS = {Unit.LABEL: ("targets", "residuals", "gradients"), Unit.SAMPLE: ("embeddings", "bottom_sum")}
"""The hooks through which a defense may randomise what depends on the unit."""
DRAWS = 2000
"""Draws of a hook's noise on one input, from which its standard deviation is measured."""
_SLACK = 0.03
"""More than five standard errors of a standard deviation from ``DRAWS`` draws of sixteen numbers."""
_MOST = 200
"""Numbers of a message whose noise is compared pair by pair."""
_CORRELATION = 6.5 / DRAWS**0.5


@dataclass(kw_only=True)
class Call:
    """One call of a hook: its name, what it was given, and what it returned."""

    hook: str
    values: Tensor
    rest: tuple[Any, ...]
    rng: np.random.Generator
    output: Tensor


@dataclass(kw_only=True)
class Taped(VerticalProtection):
    """A protection that records the calls of some hooks of another one, or plays recorded outputs back.

    Args:
        names: the hooks.
        tape: the calls whose outputs are played back, in order; None: the hooks are called.
    """

    inner: VerticalProtection
    names: tuple[str, ...]
    tape: list[Call] | None = None
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.redraws, self.sends_once = self.inner.redraws, self.inner.sends_once

    def _call(self, hook: str, values: Tensor, *rest: Any) -> Tensor:
        function: Callable[..., Tensor] = getattr(self.inner, hook)
        if hook not in self.names:
            return function(values, *rest)
        *facts, rng = rest
        before = deepcopy(rng)
        # Recorded without a graph, and passed on with one: the engine differentiates embeddings.
        output = function(values, *rest)
        if self.tape is not None:
            played = self.tape[len(self.calls)].output
            output = played + (output - output.detach())
        call = Call(hook=hook, values=values.detach(), rest=tuple(facts), rng=before, output=output.detach())
        self.calls.append(call)
        return output

    def targets(self, one_hot: Tensor, context: Any, rng: np.random.Generator) -> Tensor:
        return self._call("targets", one_hot, context, rng)

    def embeddings(self, values: Tensor, party: int, context: Any, rng: np.random.Generator) -> Tensor:
        return self._call("embeddings", values, party, context, rng)

    def residuals(self, values: Tensor, context: Any, rng: np.random.Generator) -> Tensor:
        return self._call("residuals", values, context, rng)

    def gradients(self, values: Tensor, party: int, context: Any, rng: np.random.Generator) -> Tensor:
        return self._call("gradients", values, party, context, rng)

    def bottom_weights(self, norms: Tensor, party: int, context: Any) -> Tensor | None:
        return self.inner.bottom_weights(norms, party, context)

    def bottom_sum(self, total: Tensor, party: int, context: Any, rng: np.random.Generator) -> Tensor:
        return self._call("bottom_sum", total, party, context, rng)


def play_back_checks(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pair: Pair,
    *,
    law: VerticalLaw | None,
) -> tuple[CheckResult, ...]:
    """Return the results of all checks of a claim about one label, or about one person's columns at the first party.

    ``law``: the public description of the noise, where the defense publishes one.
    """
    names = _overridden(protection, claim.unit)
    first = Taped(inner=protection, names=names)
    one = _received(claim, task, plan, first, streams, pair.plant(0, 1), pair.person)
    second = Taped(inner=protection, names=names, tape=first.calls)
    other = _received(claim, task, plan, second, streams, pair.plant(1, 1), pair.person)
    released = CheckResult.at_most(
        RELEASED,
        _difference(one, other),
        0.0,
        unit="largest difference",
        witness=f"one person's data changed, outputs of {', '.join(names) or 'no hook'} the same",
    )
    pairs = list(zip(first.calls, second.calls, strict=True))
    return (released, _move(claim, protection, pairs, law), _independent(protection, first.calls))


def _overridden(protection: VerticalProtection, unit: Unit) -> tuple[str, ...]:
    hooks = HOOKS.get(unit, HOOKS[Unit.SAMPLE])
    return tuple(name for name in hooks if getattr(type(protection), name) is not getattr(VerticalProtection, name))


def _received(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    planted: Planted,
    person: int,
) -> Tensor:
    """All numbers that the observer receives, flat."""
    seen = Received(observer=claim.observer, person=person)
    final = run_vertical(task, plan, protection, streams, runs=Runs(), planted=planted, recorders=[seen])
    return all_numbers(final)[0] if claim.observer == FINAL_MODEL else torch.cat(seen.everything, dim=1)[0]


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, 0 where two numbers are equal or both not finite."""
    same = (one == other) | (~torch.isfinite(one) & ~torch.isfinite(other))
    return 0.0 if bool(same.all()) else float(torch.nan_to_num(one - other).abs()[~same].max().clamp_min(1e-30))


def _again(protection: VerticalProtection, call: Call, values: Tensor, rng: np.random.Generator) -> Tensor:
    hook: Callable[..., Tensor] = getattr(protection, call.hook)
    return hook(values, *call.rest, rng).detach()


def _move(
    claim: Claim, protection: VerticalProtection, pairs: list[tuple[Call, Call]], law: VerticalLaw | None
) -> CheckResult:
    """Hold how far the data move all noised messages, over the measured noise, against the claim's epsilon.

    Such a move is exactly (epsilon, delta)-DP for Gaussian noise, and for Laplace noise without delta.
    """
    laplace = law is not None and law.noise is Noise.LAPLACE and claim.delta == 0
    gaussian = claim.delta > 0 and (
        isinstance(claim.curve, GaussianCurve) or (law is not None and law.noise is Noise.GAUSSIAN)
    )
    if not laplace and not gaussian:
        words = "neither Gaussian noise at a delta above 0 nor Laplace noise without one is published"
        return CheckResult(name=MOVE, passed=None, witness=words)
    scales: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for one, other in pairs:
        # Equal draws: the difference of the outputs is what the data move, after any clip.
        outputs = [_again(protection, one, call.values, deepcopy(one.rng)).double() for call in (one, other)]
        moved = (outputs[1] - outputs[0]).abs()
        if not bool((moved > 0).any()):
            continue
        # Of each epoch, in which each person has one batch, the first such message is measured.
        epochs = [fact.epoch for fact in one.rest if isinstance(fact, VerticalContext)]
        place = (one.hook, *(fact for fact in one.rest if isinstance(fact, int)), *epochs)
        if place not in scales:
            scales[place] = _scale(protection, one, laplace=laplace)
        if scales[place] == 0:
            return CheckResult(name=MOVE, passed=False, witness=f"the hook {one.hook} adds no noise")
        total += float(moved.sum()) / scales[place] if laplace else float(moved.square().sum()) / scales[place] ** 2
    norm = total if laplace else total**0.5
    found = CheckResult.at_most(
        MOVE,
        _epsilon(claim, norm / (1 + _SLACK), laplace=laplace),
        claim.epsilon,
        slack=1e-6 * claim.epsilon,
        unit="epsilon",
        witness=f"{len(pairs)} messages under both data sets, each given what was released before it",
    )
    # Noise that is smaller by twice the slack is found with certainty.
    return replace(found, detects=_epsilon(claim, norm * (1 + 2 * _SLACK), laplace=laplace))


def _epsilon(claim: Claim, norm: float, *, laplace: bool) -> float:
    """The epsilon of a move of this norm, in units of the noise: L1 for Laplace, L2 for Gaussian noise."""
    return norm if laplace else epsilon_from_mu(norm, claim.delta)


def _scale(protection: VerticalProtection, call: Call, *, laplace: bool) -> float:
    """The measured scale of the noise of a call: the standard deviation, or the mean absolute deviation."""
    drawn = _draws(protection, call)
    return float((drawn - drawn.mean(0)).abs().mean() if laplace else drawn.std(0).mean())


def _draws(protection: VerticalProtection, call: Call) -> Tensor:
    """Many outputs of one call on the same input: (DRAWS, numbers)."""
    values = call.values.expand(DRAWS, *call.values.shape[1:])
    streams = Streams(0).generator("play back")
    rest = tuple(_many(fact) for fact in call.rest)
    output = _again(protection, Call(**{**vars(call), "rest": rest}), values, streams)
    return output.double().flatten(1)


def _many(fact: Any) -> Any:
    """Return a context for ``DRAWS`` replicas; other facts as they are."""
    if not isinstance(fact, VerticalContext):
        return fact
    targets = None if fact.targets is None else fact.targets.expand(DRAWS, *fact.targets.shape[1:])
    return replace(fact, replicas=DRAWS, targets=targets)


def _independent(protection: VerticalProtection, calls: list[Call]) -> CheckResult:
    """Compare the noise of the first message, number by number, with itself and with the next message's."""
    skip = partial(CheckResult, name=INDEPENDENT, passed=None)
    noised = [call for call in calls if call.hook != "targets"]
    if not noised:
        return skip(witness="no hook adds noise to numbers")
    drawn = _draws(protection, noised[0])[:, :_MOST]
    if not bool((drawn.std(0) > 0).all()):
        return skip(witness="some numbers of the first noised message have no noise")
    table = torch.corrcoef(drawn.T).reshape(drawn.shape[1], -1)
    table.fill_diagonal_(0)
    return CheckResult.at_most(
        INDEPENDENT,
        float(table.abs().max()),
        _CORRELATION,
        unit="correlation",
        witness=f"{drawn.shape[1]} numbers of the first message of {noised[0].hook}, {DRAWS} draws on one input",
    )
