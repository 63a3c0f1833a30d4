"""Record the calls of a defense's hooks (methods that the engine calls) in a run, and play recorded outputs back in
another run.

Only noise is played back. Constants, numbers of a hook's outputs that are the same in many draws under either of two
inputs, are none. If a number is ``c`` under one input with probability ``1 - p``, and another one under the other input
with probability ``1 - q``, then an (epsilon, delta)-DP release has ``p + exp(epsilon) q >= 1 - delta``, so that ``p``
or ``q`` is at least ``(1 - delta) / (1 + exp(epsilon))``. As many draws as ``SURE`` times the inverse of this never
differ with probability ``exp(-SURE)`` at most.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Claim
from ....fl.hooks import check_returned
from ....fl.streams import Streams
from ....fl.vertical.protection import VerticalContext, VerticalProtection

AT_ONCE = 2**20
"""Numbers that a hook is given at once, of which it may hold several times as much."""


@dataclass(kw_only=True)
class Call:
    """A recorded call of a hook (a method that the engine calls): the hook's name, its arguments, and its result."""

    hook: str
    values: Tensor
    rest: tuple[Any, ...]
    rng: np.random.Generator
    output: Tensor


@dataclass(kw_only=True)
class Taped(VerticalProtection):
    """A protection that wraps another protection, and records the calls of some hooks or plays recorded outputs back.

    Args:
        names: the hooks.
        tape: the calls whose outputs are played back, in order; None: the hooks are called.
        fixed: (recorded call, this call) -> the numbers that are no noise, and are not played back: which ones, and
            what this call returns for them. None: all outputs are played back.
    """

    inner: VerticalProtection
    names: tuple[str, ...]
    tape: list[Call] | None = None
    fixed: Callable[[Call, Call], tuple[Tensor, Tensor] | None] | None = None
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
        output = check_returned(hook, function(values, *rest), values, of_type=True)
        call = Call(hook=hook, values=values.detach(), rest=tuple(facts), rng=before, output=output.detach())
        if self.tape is not None:
            played = self._played(self.tape[len(self.calls)], call)
            # The engine differentiates embeddings; an output that overflows passes no gradient on.
            output = played + torch.nan_to_num(output - output.detach()) if output.requires_grad else played
        self.calls.append(replace(call, output=output.detach()))
        return output

    def _played(self, recorded: Call, call: Call) -> Tensor:
        found = self.fixed(recorded, call) if self.fixed else None
        return recorded.output if found is None else torch.where(*found, recorded.output)

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


class NotJudged(Exception):
    """The error raised if the outputs of a hook cannot be judged; the message states why."""


def again(protection: VerticalProtection, call: Call, rng: np.random.Generator, *, replicas: int = 1) -> Tensor:
    """Return the outputs of a copy of the protection for the inputs of a recorded call, in many replicas at once:
    (replicas, ...).

    Raises NotJudged where the hook raises, as one may that needs what it stored in earlier calls.
    """
    hook: Callable[..., Tensor] = getattr(deepcopy(protection), call.hook)
    values = call.values.expand(replicas, *call.values.shape[1:]).clone()
    try:
        found = hook(values, *(_many(fact, replicas) for fact in call.rest), rng)
        return check_returned(call.hook, found, values, of_type=True).detach()
    except Exception as error:
        raise NotJudged(f"the hook {call.hook} cannot be called alone: {error!r}") from error


def kept(
    protection: VerticalProtection, call: Call, rng: np.random.Generator, *, replicas: int, places: Tensor
) -> Tensor:
    """Return some of the numbers that ``again`` returns: (replicas, places). At any time, the memory holds only these
    numbers and what the hook needs for ``AT_ONCE`` numbers.
    """
    most = max(1, AT_ONCE // call.values.numel())
    parts = [min(most, replicas - start) for start in range(0, replicas, most)]
    return torch.cat([again(protection, call, rng, replicas=part).flatten(1)[:, places] for part in parts])


def recorded(protection: VerticalProtection, call: Call) -> Tensor:
    """Return the recorded output of a call, computed again by a copy of the protection that made no earlier calls.

    Raises NotJudged where the copy returns another output, or raises.
    """
    output = again(protection, call, deepcopy(call.rng))
    if not torch.equal(torch.nan_to_num(output), torch.nan_to_num(call.output)):
        raise NotJudged(f"the output of the hook {call.hook} depends on earlier calls, so its noise may too")
    return output


def _many(fact: Any, replicas: int) -> Any:
    """Return a context for this number of replicas; other facts as they are."""
    if not isinstance(fact, VerticalContext):
        return fact
    targets = None if fact.targets is None else fact.targets.expand(replicas, *fact.targets.shape[1:])
    return replace(fact, replicas=replicas, targets=targets)


SURE = 20
"""Minus the logarithm of the probability that a private number is taken for a constant."""
_FEW = 4
"""Calls of a hook with other generators, because it may draw one noise for all replicas."""
_UNDRAWN = 1000
"""Draws at most of a hook that takes nothing from its generator, so that its outputs follow from its inputs unless it
has numbers from elsewhere.
"""
_MOST = 10_000_000
"""Numbers that are drawn at most; of a hook that returns more, all numbers count as noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Constants:
    """Finds the numbers that a protection's hooks release without noise (constants).

    Args:
        claim: which is false where a constant that the adversary receives depends on the unit.
        protection: as it is before the training.
        seen: the hook whose outputs the adversary receives themselves; None: no hook. In outputs of other hooks one
            number's noise may hide another number, so they have constants only where all their numbers are constant.
        left: which hooks' outputs were not looked at, and why, in words.
    """

    claim: Claim
    protection: VerticalProtection
    seen: str | None
    left: set[str] = field(default_factory=set)

    def __call__(self, one: Call, other: Call) -> tuple[Tensor, Tensor] | None:
        """Return which numbers of ``other`` are constants, and all numbers of one draw of it; None: no number is."""
        first = self._of(one)
        if first is None:
            return None
        second = self._of(other)
        if second is None:
            return None
        # Where a hook's output depends on earlier calls, one call alone does not show what it returns.
        known = first[0] & second[0] & (first[1] == one.output)
        return (known, second[1]) if one.hook == self.seen or bool(known.all()) else None

    def _of(self, call: Call) -> tuple[Tensor, Tensor] | None:
        """Which numbers do not differ by draw, and the first draw."""
        rng = Streams(0).generator("constants")
        before = str(rng.bit_generator.state)
        try:
            # A hook of the user's own may not run on its own.
            few = torch.cat([again(self.protection, call, rng) for _ in range(_FEW)])
            same = (few == few[:1]).all(0, keepdim=True)
            if not bool(same.any()):
                return same, few[:1]
            count = math.ceil(SURE * (1 + math.exp(min(self.claim.epsilon, 100.0))) / (1 - self.claim.delta))
            if str(rng.bit_generator.state) == before:
                count = min(count, _UNDRAWN)
            if count * call.values.numel() > _MOST:
                words = f"{count} draws of its numbers are too many"
                self.left.add(f"constants were not looked for in {call.hook}: {words}")
                return None
            drawn = again(self.protection, call, rng, replicas=count)
        except Exception:
            return None
        return same & (drawn == few[:1]).all(0, keepdim=True), few[:1]
