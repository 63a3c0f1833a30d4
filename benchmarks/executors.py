"""The engine's executors, by name, for scripts that measure all of them."""

from importlib.util import find_spec
from typing import Any

USUAL = "usual"
"""The executor that a federation uses where none is named."""
_CHOICE = "fedassay.fl.training.executor_choice"


def executors() -> tuple[str, ...]:
    """Return the names of the executors; only the usual one where the engine has no choice."""
    if find_spec(_CHOICE) is None:
        return (USUAL,)
    from fedassay.fl.training.executor_choice import known_executors

    return tuple(sorted(known_executors(), key="sequential".__ne__))


def chosen(name: str) -> dict[str, Any]:
    """Return the arguments by which ``run_federation`` uses an executor."""
    if name == USUAL:
        return {}
    from fedassay.fl.training.executor_choice import executor_named

    return {"executor": executor_named(name)}
