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
from ...audit.gaussian import epsilon_from_mu, mu_from_epsilon
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, Runs, run_vertical
from ...fl.vertical.law import Noise, VerticalLaw
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalContext, VerticalProtection
from ...fl.vertical.task import VerticalTask
from .pairs import Pair
from .received import Received, all_numbers

RELEASED, MOVE, INDEPENDENT = "released noise alone", "move over noise", "independent noise"
HOOKS = {Unit.LABEL: ("targets", "residuals", "gradients"), Unit.SAMPLE: ("columns", "embeddings", "bottom_sum")}
"""The hooks through which a defense may randomise what depends on the unit."""
DRAWS = 2000
"""Draws of a hook's noise on one input, from which its standard deviation is measured."""
_SLACK = 0.03
"""Share by which a measured move over noise may exceed the stated one; larger where few numbers measure the noise."""
_TRIES = 3
"""Draws under which the data must move a message equally far, as in a sum of message and noise."""
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
            # The engine differentiates embeddings; an output that overflows passes no gradient on.
            output = played + torch.nan_to_num(output - output.detach()) if output.requires_grad else played
        call = Call(hook=hook, values=values.detach(), rest=tuple(facts), rng=before, output=output.detach())
        self.calls.append(call)
        return output

    def columns(self, values: Tensor, party: int, plan: Any, rng: np.random.Generator) -> Tensor:
        return self._call("columns", values, party, plan, rng)

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
    # Copies: what one run leaves in an object must not reach another.
    first = Taped(inner=deepcopy(protection), names=names)
    one = _received(claim, task, plan, first, streams, pair.plant(0, 1), pair.person)
    second = Taped(inner=deepcopy(protection), names=names, tape=first.calls)
    other = _received(claim, task, plan, second, streams, pair.plant(1, 1), pair.person)
    pairs = list(zip(first.calls, second.calls, strict=True))
    return (
        _released(claim, pair, names, one, other, pairs),
        _move(claim, protection, pairs, law),
        _independent(protection, first.calls, law),
    )


def _released(
    claim: Claim, pair: Pair, names: tuple[str, ...], one: Tensor, other: Tensor, pairs: list[tuple[Call, Call]]
) -> CheckResult:
    """Compare what the observer received in both runs, whose released outputs are the same."""
    seen = {ACTIVE_PARTY: "embeddings", PASSIVE_PARTY: "gradients"}.get(claim.observer)
    if seen in names and any(_others_move(first, second, pair.person) for first, second in pairs):
        # Equal by construction: the observer receives the played outputs themselves, and their inputs are what counts.
        words = f"the adversary receives the outputs of {seen}, whose inputs move in rows of other people"
        return CheckResult(name=RELEASED, passed=None, witness=words)
    return CheckResult.at_most(
        RELEASED,
        _difference(one, other),
        0.0,
        unit="largest difference",
        witness=f"one person's data changed, outputs of {', '.join(names) or 'no hook'} the same",
    )


def _others_move(one: Call, other: Call, person: int) -> bool:
    """Whether the inputs of a call differ in rows of other people."""
    people = next((fact.people for fact in one.rest if isinstance(fact, VerticalContext)), None)
    if one.hook == "bottom_sum" or people is None:
        return False
    return bool((one.values != other.values)[:, people != person].any())


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
    hook: Callable[..., Tensor] = getattr(deepcopy(protection), call.hook)
    return hook(values.clone(), *call.rest, rng).detach()


def _move(
    claim: Claim, protection: VerticalProtection, pairs: list[tuple[Call, Call]], law: VerticalLaw | None
) -> CheckResult:
    """Hold how far the data move all noised messages, over the measured noise, against the claim's epsilon.

    Such a move is exactly (epsilon, delta)-DP for Gaussian noise, and for Laplace noise without delta, which the law
    must publish.
    """
    skip = partial(CheckResult, name=MOVE, passed=None)
    laplace = law is not None and law.noise is Noise.LAPLACE and claim.delta == 0
    gaussian = law is not None and law.noise is Noise.GAUSSIAN and claim.delta > 0
    if law is None or not (laplace or gaussian):
        return skip(witness="neither Gaussian noise at a delta above 0 nor Laplace noise without one is published")
    scales: dict[tuple[Any, ...], tuple[float, float]] = {}
    total, slack, counted = 0.0, _SLACK, 0
    for one, other in pairs:
        if one.hook not in (law.noised, "bottom_sum") or not _is_seen(claim, one):
            continue
        counted += 1
        moved = [_moved(protection, one, other, number) for number in range(_TRIES)]
        if not bool((moved[0] != 0).any()):
            continue
        # Differences of single precision: exact to some digits of the noised numbers.
        digits = 1e-5 * float(one.output.abs().max())
        if any(not torch.allclose(moved[0], again, rtol=1e-3, atol=digits) for again in moved[1:]):
            return skip(witness=f"what {one.hook} returns is no sum of a message and noise: its move differs by draw")
        # Of each epoch, in which each person has one batch, the first such message is measured.
        epochs = [fact.epoch for fact in one.rest if isinstance(fact, VerticalContext)]
        place = (one.hook, *(fact for fact in one.rest if isinstance(fact, int)), *epochs)
        if place not in scales:
            scales[place] = _scale(protection, one, laplace=laplace)
        scale, error = scales[place]
        if scale == 0:
            return CheckResult(name=MOVE, passed=False, witness=f"the hook {one.hook} adds no noise")
        slack = max(slack, error)
        total += float(moved[0].abs().sum()) / scale if laplace else float(moved[0].square().sum()) / scale**2
    norm = total if laplace else total**0.5
    if norm == 0:
        return skip(witness="the two data sets move no noised message")
    found = CheckResult.at_most(
        MOVE,
        _epsilon(claim, norm / (1 + slack), laplace=laplace),
        claim.epsilon,
        slack=1e-6 * claim.epsilon,
        unit="epsilon",
        witness=f"{counted} messages under both data sets, each given what was released before it",
    )
    # The pair moves less than the worst one may: so much larger must the loss be before this check finds it.
    stated = claim.epsilon if laplace else mu_from_epsilon(claim.epsilon, claim.delta)
    return replace(found, detects=_epsilon(claim, stated**2 * (1 + 2 * slack) / norm, laplace=laplace))


def _is_seen(claim: Claim, call: Call) -> bool:
    """Whether the observer, the first passive party, receives a message; messages to other parties are theirs."""
    return not (call.hook == "gradients" and claim.observer == PASSIVE_PARTY and call.rest[0] != 0)


def _moved(protection: VerticalProtection, one: Call, other: Call, number: int) -> Tensor:
    """The difference of a hook's outputs on the inputs of two runs, with equal draws."""
    drawn = deepcopy(one.rng) if number == 0 else Streams(number).generator("play back move")
    outputs = [_again(protection, one, call.values, deepcopy(drawn)).double() for call in (one, other)]
    return outputs[1] - outputs[0]


def _epsilon(claim: Claim, norm: float, *, laplace: bool) -> float:
    """The epsilon of a move of this norm, in units of the noise: L1 for Laplace, L2 for Gaussian noise."""
    return norm if laplace else epsilon_from_mu(norm, claim.delta)


def _scale(protection: VerticalProtection, call: Call, *, laplace: bool) -> tuple[float, float]:
    """The measured scale of the noise of a call, the standard deviation or the mean absolute deviation, with five
    times its relative standard error.
    """
    drawn = _draws(protection, call)
    found = float((drawn - drawn.mean(0)).abs().mean() if laplace else drawn.std(0).mean())
    return found, 5 / drawn.numel() ** 0.5


def _draws(protection: VerticalProtection, call: Call) -> Tensor:
    """Many outputs of one call on the same input: (DRAWS, numbers)."""
    values = call.values.expand(DRAWS, *call.values.shape[1:]).clone()
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


def _independent(protection: VerticalProtection, calls: list[Call], law: VerticalLaw | None) -> CheckResult:
    """Compare the noise of the numbers of the first message, which the law states to be independent, pair by pair."""
    skip = partial(CheckResult, name=INDEPENDENT, passed=None)
    noised = [call for call in calls if law is not None and law.noise is not None and call.hook == law.noised]
    if not noised:
        return skip(witness="no independent noise of numbers is published")
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
