"""Record the calls of a protection's hooks in a run, and play recorded outputs back in another run."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....fl.hooks import check_returned
from ....fl.vertical.protection import VerticalContext, VerticalProtection

AT_ONCE = 2**20
"""Numbers that a hook is given at once, of which it may hold several times as much."""


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
    """Why what a hook returns cannot be judged."""


def again(protection: VerticalProtection, call: Call, rng: np.random.Generator, *, replicas: int = 1) -> Tensor:
    """Return what a copy of the protection returns for a call's inputs, in many replicas at once: (replicas, ...).

    Raises NotJudged where the hook raises, as one may that needs what it stored in earlier calls.
    """
    hook: Callable[..., Tensor] = getattr(deepcopy(protection), call.hook)
    values = call.values.expand(replicas, *call.values.shape[1:]).clone()
    try:
        found = hook(values, *(_many(fact, replicas) for fact in call.rest), rng)
        return check_returned(call.hook, found, values, of_type=True).detach()
    except Exception as error:
        raise NotJudged(f"{call.hook} cannot be called alone: {error!r}") from error


def kept(
    protection: VerticalProtection, call: Call, rng: np.random.Generator, *, replicas: int, places: Tensor
) -> Tensor:
    """Return some numbers of what ``again`` returns: (replicas, places). No more than these are held at once, and what
    the hook needs for ``AT_ONCE`` numbers.
    """
    most = max(1, AT_ONCE // call.values.numel())
    parts = [min(most, replicas - start) for start in range(0, replicas, most)]
    return torch.cat([again(protection, call, rng, replicas=part).flatten(1)[:, places] for part in parts])


def recorded(protection: VerticalProtection, call: Call) -> Tensor:
    """Return what was recorded for a call, from a copy of the protection without the calls before.

    Raises NotJudged where the copy returns another output, or raises.
    """
    output = again(protection, call, deepcopy(call.rng))
    if not torch.equal(torch.nan_to_num(output), torch.nan_to_num(call.output)):
        raise NotJudged(f"what {call.hook} returns depends on earlier calls, and so may its noise")
    return output


def _many(fact: Any, replicas: int) -> Any:
    """Return a context for this number of replicas; other facts as they are."""
    if not isinstance(fact, VerticalContext):
        return fact
    targets = None if fact.targets is None else fact.targets.expand(replicas, *fact.targets.shape[1:])
    return replace(fact, replicas=replicas, targets=targets)
