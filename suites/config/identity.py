"""Identity: the hash of everything that determines a value. Equal hashes, equal results."""

import hashlib
import json
import math
from typing import Any

import numpy as np

IDENTITY = "identity-4"
"""Changes whenever the same configuration would give other numbers (streams, engine, scoring)."""


def identity(**facts: Any) -> str:
    """Sixteen hex digits over the facts, in canonical JSON; independent of their order and of the process.

    Raises:
        TypeError: for a fact that is not plain_data data.
    """
    text = json.dumps({"identity": IDENTITY, **facts}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain_data(value: Any) -> Any:
    """A part's field as plain_data data: finite numbers, text and containers as they are, anything else by its repr."""
    if isinstance(value, np.generic):
        return plain_data(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    return repr(value)
