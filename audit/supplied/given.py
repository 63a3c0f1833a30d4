"""Reads arrays of scores that a user supplies, from NumPy, pandas or PyTorch, and checks the level of an audit."""

from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..binomial import check_level
from ..exact import as_floats

MOST_ALPHA = 0.5
"""The largest level of an audit: with a larger one, more than every second true claim may be refuted."""


def scores_or_rows(name: str, values: Any) -> FloatArray:
    """Return the scores as float64: (n,), also where they are given as one column (n, 1), or rows (n, d).

    Raises ValueError for anything else than numbers.
    """
    array = as_floats(name, _detached(values))
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha lies in (0, 0.5]."""
    check_level("alpha", alpha)
    if alpha > MOST_ALPHA:
        raise ValueError(f"alpha (probability of a false refutation) must be <= {MOST_ALPHA}, got {alpha}")


def _detached(values: Any) -> Any:
    # A tensor that requires gradients or lies on an accelerator cannot become an array of itself.
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
    return np.asarray(values) if hasattr(values, "__array__") else values
