"""Imports the function or the system that a text such as ``file.py:name`` names, and reads the inputs of a function."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..audit.output_file import parsed_json
from ..audit.parts import (
    NoFile,
    check_name_free,
    check_not_shadowed,
    extras_named,
    import_first_from,
    import_last_from_here,
)
from ..audit.wording import nearest

_PARTS = ("claim", "law", "replayable")


def find_function(target: str) -> Callable[..., Any]:
    """Import and return the user's function named by ``package.module:function`` or ``path/to/file.py:function``.

    Raises:
        ValueError: the module cannot be imported, or has no such function (known names are listed, nearest first).
    """
    found = find_object(target)
    if not callable(found):
        raise ValueError(f"{target} must be a function, got {type(found).__name__}")
    mechanism: Callable[..., Any] = found
    _check_kind(target, mechanism)
    return mechanism


def find_object(target: str) -> Any:
    """Import and return the object that ``package.module:name`` or ``path/to/file.py:name`` names.

    Raises:
        ValueError: the module cannot be imported, or has no such name (known ones are listed, nearest first).
    """
    place, _, name = target.rpartition(":")
    if place.endswith(".py") and not Path(place).is_file():
        raise ValueError(f"no such file: {place}")
    if not place.endswith(".py"):
        import_last_from_here()
    try:
        with extras_named():
            module = _module_of(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except NoFile:
        raise
    except (Exception, SystemExit) as error:  # A user's module may raise anything on import.
        raise ValueError(f"cannot import {place}: {type(error).__name__}: {error}") from error
    if not place.endswith(".py"):
        check_not_shadowed(place, target)
    if not hasattr(module, name):
        # Functions and systems, which have a method run, and not modules or numbers.
        usable = [key for key, value in vars(module).items() if callable(value) or hasattr(value, "run")]
        known = nearest(name, [key for key in usable if not key.startswith("_")])
        raise ValueError(f"{place} has no function or system {name!r}; it has: {known}")
    return getattr(module, name)


def is_runner(found: object) -> bool:
    """Whether an object is a foreign system that can be run with and without a unit; the check computes none of its
    properties.
    """
    return not isinstance(found, type) and callable(getattr(found, "run", None)) and not missing_parts(found)


def missing_parts(found: object) -> list[str]:
    """Return the members of a ``Runner`` other than ``run`` that an object lacks, without computing any of them."""
    held = {*dir(type(found)), *getattr(found, "__dict__", {})}
    return [name for name in _PARTS if name not in held]


def _check_kind(target: str, found: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called as ``function(x, rng)`` and return its output."""
    call = found if inspect.isroutine(found) else getattr(found, "__call__", found)  # noqa: B004
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise ValueError(f"{target} is an async function: give a function that returns its output")
    if inspect.isgeneratorfunction(call):
        raise ValueError(f"{target} is a generator function (it uses yield): give a function that returns its output")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # Functions of compiled code may state no signature.
    try:
        signature.bind(0, 0)
    except TypeError:
        raise ValueError(f"{target} must take two arguments, (x, rng), but its signature is {signature}") from None


def _module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    check_name_free(path, str(path))
    import_first_from(str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def read_json(text: str) -> Any:
    """Parse one of the two JSON texts given after ``--inputs``."""
    try:
        # Without parse_constant Python accepts NaN and Infinity, which are not JSON.
        return parsed_json(text, parse_constant=_no_number)
    except ValueError as error:
        shown = """0 1, '[0, 0]' '[1, 0]' or '"no"' '"yes"'"""
        raise ValueError(f"--inputs must be two JSON values, such as {shown}; got {text!r}: {error}") from None


def read_input(text: str) -> Any:
    """Parse the input given as a JSON text after ``--inputs``; a list of numbers becomes an array."""
    value = read_json(text)
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "biuf" else value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
