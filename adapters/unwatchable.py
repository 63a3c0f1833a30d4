"""Refuses trainings that cannot be judged by watching a single process, and functions and data of another kind; each
error says what to do.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed
from torch import nn
from torch.amp import GradScaler

from ..checks.training_record import RecordError


class Unwatchable(RecordError):
    """The error for a training that cannot be watched, although the training itself has no fault."""


class WrongUse(RecordError, TypeError):
    """The error for a function that does not take what it would be called with, and for data of another kind."""


def check_call(role: str, function: Callable[..., Any], given: Sequence[Any], *, what: str, also: str = "") -> None:
    """Raise WrongUse, before the call, if the ``function`` in this role does not take the arguments ``given``.

    ``what``: these arguments in words; ``also``: what else may be the cause.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Functions of compiled code may state no signature.
    try:
        signature.bind(*given)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        words = f"{role} must take {what}, but {name} has the signature {signature}"
        raise WrongUse(f"{words}: {also}" if also else words) from None


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        check_call("", function, [None] * count, what="")
    except WrongUse:
        return False
    return True


def refuse_shares(*, what: str) -> None:
    """Raise Unwatchable if several processes train together, because one process sees only its part of lots and sums;
    ``what``: the reason in words.
    """
    group = torch.distributed
    count = group.get_world_size() if group.is_available() and group.is_initialized() else 1
    if count > 1:
        raise Unwatchable(
            f"this is one of {count} processes that train together (torch.distributed), and it sees only its own "
            f"part of lots, sums and noise: {what}"
        )


def refuse_sharded(*held: Any) -> None:
    """Raise Unwatchable for a module, optimizer or parameter that holds shards of a model (FSDP, DTensor)."""
    for one in held:
        parts = [*one.modules(), *one.parameters()] if isinstance(one, nn.Module) else [one]
        names = {kind.__name__ for part in parts for kind in type(part).__mro__}
        found = sorted(name for name in names if name == "DTensor" or name.startswith(("FSDP", "FullyShardedDataPara")))
        if found:
            raise Unwatchable(
                f"the model is sharded over processes ({found[0]}), so that no process holds whole gradients or "
                "sums: watch "
                "the same training without FSDP, in one process"
            )


def refuse_scaler() -> None:
    """Raise Unwatchable if an enabled ``GradScaler`` calls an optimizer's step; call this inside that step."""
    frame = sys._getframe(1)
    while frame is not None:
        own = frame.f_locals.get("self")
        if isinstance(own, GradScaler) and own.is_enabled():
            raise Unwatchable(
                "GradScaler skips steps and changes its factor when gradients without noise overflow, which no "
                "claim covers: train in bfloat16 without it, or with GradScaler(enabled=False)"
            )
        frame = frame.f_back  # type: ignore[assignment]


def unwrapped(part: Any) -> Any:
    """Return the module, optimizer or loader that Lightning Fabric wraps, or the part itself."""
    inner = {"_FabricModule": "module", "_FabricOptimizer": "optimizer", "_FabricDataLoader": "_dataloader"}
    for kind in type(part).__mro__:
        if kind.__name__ in inner and kind.__module__.startswith("lightning"):
            return unwrapped(getattr(part, inner[kind.__name__]))
    return part
