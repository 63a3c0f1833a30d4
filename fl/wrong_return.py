"""The error for a hook that returns what the engine cannot use, in the same words for all kinds of federations."""

from typing import Any

import numpy as np
from torch import Tensor


def wrong_return(hook: str, allowed: str, returned: Any) -> ValueError:
    """Return the error that says what a hook must return, and what it returned: ``returned``, or words about it."""
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
