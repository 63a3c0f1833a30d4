"""Check the arguments that Python code passes to ``fedassay.run``; the command line checks its own options."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ...audit.parts import extras_named
from ...fl.fields import check_count
from .source import ConfigError


def check_arguments(
    suite: Any,
    *,
    defenses: Any = (),
    seed: Any = 0,
    seeds: Any = None,
    jobs: Any = None,
    device: Any = None,
    preset: Any = None,
    folder: Any = None,
) -> None:
    """Raise ConfigError for the first argument of ``fedassay.run`` that has the wrong type or is out of range."""
    with extras_named():
        from .tables.suite import Suite  # Lazy: a finished run is opened without torch.

    if not isinstance(suite, str | Path | Mapping | Suite):
        raise ConfigError(
            "suite must be the name of a bundled suite, the path of a suite file, a dictionary with the keys of a "
            f"suite file or a fedassay.Suite, got {suite!r}"
        )
    # A string is iterable too: without this test it would become a list of its letters.
    if not isinstance(defenses, Iterable) or isinstance(defenses, str):
        raise ConfigError(
            f"defenses must be a list of names or of defense objects such as ['dp_sgd'], got {defenses!r}"
        )
    try:
        check_count("seed", seed, least=0)
        for name, value in (("seeds", seeds), ("jobs", jobs)):
            if value is not None:
                check_count(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for name, value, such_as in (("device", device, "cpu"), ("preset", preset, "smoke")):
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} must be a name such as {such_as!r}, got {value!r}")
    if folder is not None:
        check_folder(folder)


def check_gate(baseline: Any, margins: Any) -> None:
    """Raise ConfigError for a baseline or margins of the wrong type; None means that none are given."""
    if baseline is not None:
        _check_path("baseline", baseline, 'a file such as "baselines/main"')
    if margins is not None and not isinstance(margins, Mapping):
        raise ConfigError(f'margins must be a table such as {{"auc": 0.1}}, got {margins!r}')


def check_folder(folder: Any) -> None:
    """Raise ConfigError unless ``folder`` can be the path of a run's folder."""
    _check_path("folder", folder, "the path of a run's folder")


def _check_path(name: str, path: Any, what: str) -> None:
    if not isinstance(path, str | PathLike):
        raise ConfigError(f"{name} must be {what}, got {path!r}")
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):  # It may be made later, and otherwise its reader reports it.
        return
    except (OSError, ValueError) as error:  # ValueError: a null character.
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{name} must be {what}, got {str(path)!r}: {words}") from None


def string_list(name: str, value: Any, such_as: str) -> tuple[str, ...]:
    """Return the items as a tuple if all of them are strings; otherwise raise a ConfigError that shows ``such_as``, an
    example of a valid item.
    """
    # A single string is iterable too: without this test it would become a list of its letters.
    listed = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict) else None
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{name} must be a list of strings such as [{such_as!r}], got {value!r}")
    return listed
