"""Hash everything that determines a result, so that equal hashes mean equal results."""

import hashlib
import json
import math
from typing import Any

import numpy as np

IDENTITY = "identity-6"
"""Must change whenever the same configuration would give other numbers (random streams, engine, scoring)."""


def identity(**facts: Any) -> str:
    """Return 16 hexadecimal digits of a SHA-256 hash of named facts; the hash depends neither on the order of the facts
    nor on the process.

    Raises:
        TypeError: for a fact that is not plain data.
    """
    # Not Python's hash(), which is salted anew in each process: a resumed run has to find the same cells.
    text = json.dumps({"identity": IDENTITY, **facts}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain_data(value: Any) -> Any:
    """Return a configuration value as plain data: finite numbers, text and containers unchanged, anything else as its
    ``repr``.
    """
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
