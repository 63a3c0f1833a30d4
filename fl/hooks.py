"""The base classes of all protections (defenses prepared for one plan): their methods are hooks, which an engine calls
by name.

The error for a wrong return value has the same words for all kinds of federations.
"""

from difflib import get_close_matches
from inspect import isfunction
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import Tensor

# Share of letters in common above which a method name counts as a misspelled hook (`difflib`).
_ALIKE = 0.8


Event = TypeVar("Event", contravariant=True)


class Recorder(Protocol[Event]):
    """The interface of an object that receives each event of a run once: a round, a step, or a whole transfer."""

    def watch(self, event: Event) -> None:
        """Receive an event that has ended, such as a round. The engine calls this method, which must not change what it
        receives.
        """
        ...


class Hooks:
    """A base class for sets of hooks (methods that an engine calls). The hooks are the public methods of the class that
    derives from this one directly; further subclasses override them.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for a method whose name almost matches a hook: the engine would never call it."""
        super().__init_subclass__(**options)
        root = _root(cls)
        hooks = [] if root is cls else _public(root)
        for name in _public(cls):
            if not hasattr(super(cls, cls), name):
                # A misspelled hook would leave its noise out without any error, and the audit would blame the defense.
                for hook in get_close_matches(name, hooks, n=1, cutoff=_ALIKE):
                    raise TypeError(f"{cls.__name__}.{name} overrides no hook: did you mean {hook}? If not, rename it")


def overrides(protection: Hooks, hook: str) -> bool:
    """Return whether a protection has its own version of a hook (a method that the engine calls), defined by its class
    or set on the object.
    """
    own = getattr(protection, hook)
    return getattr(own, "__func__", own) is not getattr(_root(type(protection)), hook)


def _root(cls: type) -> type:
    """The class that defines the hooks of a protection's class."""
    return next(one for one in cls.__mro__ if Hooks in one.__bases__)


def _public(owner: type) -> list[str]:
    """The names of a class's own public methods."""
    return [name for name, member in vars(owner).items() if isfunction(member) and not name.startswith("_")]


def check_returned(hook: str, found: object, like: Tensor, *, of_type: bool = False) -> Tensor:
    """Return a hook's result, or raise ValueError unless it is a tensor of the shape of ``like``.

    ``of_type``: whether its numbers must be of the same type too.

    Torch would broadcast one row to all replicas (independent runs) silently, and they would share their noise.
    """
    if isinstance(found, Tensor) and found.shape == like.shape and (found.dtype == like.dtype or not of_type):
        return found
    kind = f"{like.dtype} and " if of_type else ""
    raise wrong_return(hook, f"a torch.Tensor of {kind}shape {tuple(like.shape)}, one row per replica", found)


def wrong_return(hook: str, allowed: str, returned: Any) -> ValueError:
    """Return the error that states what a hook must return, and what it returned instead: ``returned``, or a
    description of the result.
    """
    shown = returned if isinstance(returned, str) else _described(returned)
    return ValueError(f"hook {hook} must return {allowed}, got {shown}")


def _described(value: Any) -> str:
    """Type, and of an array also its kind of numbers and its shape."""
    if isinstance(value, tuple):
        return f"a tuple ({', '.join(map(_described, value))})"
    if isinstance(value, Tensor | np.ndarray):
        name = "torch.Tensor" if isinstance(value, Tensor) else "numpy.ndarray"
        return f"{name} of {value.dtype} and shape {tuple(value.shape)}"
    if value is None:
        return "None: a method without return gives None"
    kind = type(value).__name__
    return f"{value!r} ({kind})" if isinstance(value, int | float) else kind
