"""Check the arguments that Python code passes to ``fedassay.run``; the command line checks its own options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...fl.fields import check_count
from .source import ConfigError


def check_arguments(suite: Any, *, seed: Any = 0, seeds: Any = None, jobs: Any = None, device: Any = None) -> None:
    """Raise ConfigError for the first argument of ``fedassay.run`` that has the wrong type or is out of range."""
    if not isinstance(suite, str | Path):
        raise ConfigError(f"suite must be the name of a bundled suite or the path of a suite file, got {suite!r}")
    try:
        check_count("seed", seed, least=0)
        for name, value in (("seeds", seeds), ("jobs", jobs)):
            if value is not None:
                check_count(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if device is not None and not isinstance(device, str):
        raise ConfigError(f"device must be a name such as 'cpu', got {device!r}")


def string_list(name: str, value: Any, such_as: str) -> tuple[str, ...]:
    """Return the items as a tuple if all of them are strings; otherwise raise ConfigError with the example ``such_as``
    of a valid item.
    """
    # A single string is iterable too: without this test it would become a list of its letters.
    listed = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict) else None
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{name} must be a list of strings such as [{such_as!r}], got {value!r}")
    return listed
