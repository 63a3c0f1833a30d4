"""Beside: modules that lie in a suite file's own folder are its parts' first home, wherever the command is given."""

import os
import sys
from pathlib import Path

from .source import ConfigError
from .suite import SuiteSpec


def folder_of_suite(suite_file: Path) -> str:
    """Where a suite file lies, as the import path names it."""
    return str(suite_file.resolve().parent)


def names_outside_parts(spec: SuiteSpec) -> bool:
    """Whether the suite names a part as ``package.module:Class``, which may lie beside it."""
    parts = [*(one.part for one in spec.defenses.values()), *(one.part for one in spec.attacks.values())]
    return any(":" in part for part in parts if part is not None)


def import_first_from(folder: str) -> None:
    """Look for modules there first, as ``python FILE`` looks beside its file, from now on: a part imports more when it
    runs, and the processes of a run start with this one's import path.
    """
    sys.path[:] = [folder, *(place for place in sys.path if place != folder)]


def check_loaded_from(part: str, folder: str) -> None:
    """Raise ConfigError where a part ``package.module:Class`` was found in another file than the one of its module's
    name in ``folder``: Python keeps one module a name, and what is audited must be what is meant.
    """
    name, colon, _ = part.partition(":")
    if not (folder and colon):
        return
    place = Path(folder, *name.split("."))
    own = next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)
    loaded = sys.modules[name].__file__
    if own is None or loaded is None or own.samefile(loaded) or own.read_bytes() == Path(loaded).read_bytes():
        return
    raise ConfigError(
        f"{name} is {loaded} here, and {own} is meant: one process loads one module of a name, rename one "
        "of them or run them apart"
    )


def path_from_run(folder: str, run: Path) -> str:
    """The suite's folder as a run's manifest keeps it: the way there from the run, which tells no more of the machine
    than it must, and still leads there where both have moved.
    """
    return os.path.relpath(folder, run.resolve())


def folder_from_manifest(way: object, run: Path) -> str:
    """The folder that a manifest means; empty where it names none that is there."""
    folder = (run.resolve() / way).resolve() if isinstance(way, str) and way else None
    return str(folder) if folder is not None and folder.is_dir() else ""
