"""Import the function that ``fedassay audit`` audits, read its two inputs, and report what it raises."""

import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..audit.mechanism import trial_stream
from ..audit.wording import nearest
from ..suites.config.source import ConfigError
from .errors import fail

T = TypeVar("T")


def find_function(target: str) -> Callable[..., Any]:
    """Import and return the user's function named by ``package.module:function`` or ``path/to/file.py:function``.

    Raises:
        ConfigError: the module cannot be imported, or has no such function (known names are listed, nearest first).
    """
    found = find_object(target)
    if not callable(found):
        raise ConfigError(f"{target} must be a function, got {type(found).__name__}")
    mechanism: Callable[..., Any] = found
    _check_kind(target, mechanism)
    return mechanism


def find_object(target: str) -> Any:
    """Import and return what ``package.module:name`` or ``path/to/file.py:name`` names.

    Raises:
        ConfigError: the module cannot be imported, or has no such name (known ones are listed, nearest first).
    """
    place, _, name = target.rpartition(":")
    try:
        module = _module_of(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # A user's module may raise anything on import.
        raise ConfigError(f"cannot import {place}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if not key.startswith("_") and _can_be_audited(value)]
        known = nearest(name, own) or "no function and no system"
        raise ConfigError(f"{place} has no function or system {name!r}; it has: {known}")
    return getattr(module, name)


def _can_be_audited(value: object) -> bool:
    """Whether a name of a module is a function or a system, and not only a module or a number."""
    from ..adapters.runner import is_runner

    return callable(value) or is_runner(value)


def _check_kind(target: str, found: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called as ``function(x, rng)`` and return its output."""
    call = found if inspect.isroutine(found) else getattr(found, "__call__", found)  # noqa: B004
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise ConfigError(f"{target} is an async function: give a function that returns its output")
    if inspect.isgeneratorfunction(call):
        raise ConfigError(f"{target} is a generator function (it uses yield): give a function that returns its output")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # Functions of compiled code may state no signature.
    try:
        signature.bind(0, 0)
    except TypeError:
        raise ConfigError(f"{target} must take two arguments, (x, rng), but its signature is {signature}") from None


def _module_of(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    # As with `python file.py`: the file can import its neighbours.
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def with_config_errors(target: str, audit: Callable[[], T]) -> T:
    """Call ``audit``; turn its ValueError into a ConfigError, and report an exception of the audited function."""
    try:
        return audit()
    except Exception as error:
        # A note marks an error inside the user's mechanism: report it as a crash of that code, not as one of ours.
        if getattr(error, "__notes__", []) or (not isinstance(error, ValueError) and _is_foreign(audit, error)):
            _fail_in_mechanism(target, error)
        if not isinstance(error, ValueError):
            raise
        raise ConfigError(str(error)) from None


def _is_foreign(call: Callable[..., Any], error: Exception) -> bool:
    """Whether an error comes from a call of the user's own function, such as one that makes a system."""
    inside = error.__traceback__.tb_next if error.__traceback__ is not None else None
    place = getattr(call, "__code__", None) if inside is None else inside.tb_frame.f_code
    package = Path(__file__).resolve().parents[1]
    return place is None or not Path(place.co_filename).resolve().is_relative_to(package)


def _fail_in_mechanism(target: str, error: Exception) -> NoReturn:
    """Print the error as Python does, with the frames below the call of the mechanism only, and exit with code 1."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        ours = [n for n, frame in enumerate(link.stack, start=1) if frame.filename == trial_stream.__file__]
        del link.stack[: max(ours, default=0)]
        link = link.__cause__ or link.__context__
    fail(f"cannot audit {target}, because it raised an exception:", *"".join(shown.format()).splitlines(), code=1)


def read_json(text: str) -> Any:
    """Return the value of one of the two JSON texts after ``--inputs``."""
    try:
        # Without parse_constant Python accepts NaN and Infinity, which are not JSON.
        return json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        shown = """0 1, '[0, 0]' '[1, 0]' or '"no"' '"yes"'"""
        raise ConfigError(f"--inputs must be two JSON values, such as {shown}; got {text!r}: {error}") from None


def read_input(text: str) -> Any:
    """Return the input that a JSON text after ``--inputs`` states; a list of numbers becomes an array."""
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
