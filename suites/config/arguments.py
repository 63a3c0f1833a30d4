"""Wishes: what a caller in Python asks of a run beside its suite; no command line has checked it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .source import ConfigError


def check_wishes(suite: Any, *, seed: Any = 0, seeds: Any = None, jobs: Any = None, device: Any = None) -> None:
    """Raise ConfigError for a value that is not of its kind, in one sentence that names it."""
    if not isinstance(suite, str | Path):
        raise ConfigError(f"suite must be a bundled suite's name or a suite file, got {suite!r}")
    check_count("seed", seed, least=0)
    for name, value in (("seeds", seeds), ("jobs", jobs)):
        if value is not None:
            check_count(name, value, least=1)
    if device is not None and not isinstance(device, str):
        raise ConfigError(f"device must be a name such as 'cpu', got {device!r}")


def check_count(name: str, value: Any, *, least: int) -> None:
    """Raise ConfigError unless a whole number from ``least`` on: True is an int to Python, but no count."""
    if type(value) is not int or value < least:
        raise ConfigError(f"{name} must be a whole number >= {least}, got {value!r}")


def texts(name: str, value: Any, such_as: str) -> tuple[str, ...]:
    """The texts of a list; ConfigError for anything else. A text itself is none, though it holds one of each letter."""
    listed = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict) else None
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{name} must be a list of texts such as [{such_as!r}], got {value!r}")
    return listed
