"""Import a suite's own modules from the suite file's folder, whatever the current folder is."""

import os
import sys
from pathlib import Path

from .source import ConfigError
from .suite import SuiteSpec


def folder_of_suite(suite_file: Path) -> str:
    """Return the folder of a suite file as text, ready to be added to ``sys.path``."""
    return str(suite_file.resolve().parent)


def names_outside_parts(spec: SuiteSpec) -> bool:
    """Return whether the suite names a defense or attack as ``package.module:Class``, which may lie in the suite file's
    folder.
    """
    parts = [*(one.part for one in spec.defenses.values()), *(one.part for one in spec.attacks.values())]
    return any(":" in part for part in parts if part is not None)


def import_first_from(folder: str) -> None:
    """Put ``folder`` first on the import path, as ``python FILE`` does with the folder of FILE.

    It stays there: a part may import more modules when it runs, and worker processes inherit this import path.
    """
    sys.path[:] = [folder, *(place for place in sys.path if place != folder)]


def check_loaded_from(part: str, folder: str) -> None:
    """Raise ConfigError if the suite's ``folder`` contains the module of ``part``, but Python has already loaded
    another module of that name.

    Python loads one module per name. Without this check a module of the same name, loaded earlier, would be audited
    instead of the suite's own.
    """
    name, colon, _ = part.partition(":")
    if not (folder and colon):
        return
    place = Path(folder, *name.split("."))
    # A folder without the module is no conflict: the part was then meant to come from an installed package.
    own = next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)
    # Files with equal content are the same part, such as a checkout and its installed copy.
    loaded = sys.modules[name].__file__
    if own is None or loaded is None or own.samefile(loaded) or own.read_bytes() == Path(loaded).read_bytes():
        return
    raise ConfigError(
        f"{name} is already loaded from {loaded}, but the suite needs {own}: a process loads one module per name; "
        "rename one of them, or run them in separate processes"
    )


def path_from_run(folder: str, run: Path) -> str:
    """Return the suite's folder relative to the run's folder, in the form in which the run's manifest stores it.

    A relative path reveals less about the machine, and stays valid where both folders are moved together.
    """
    return os.path.relpath(folder, run.resolve())


def folder_from_manifest(relative: object, run: Path) -> str:
    """Return the suite's folder as stored in a run's manifest; empty string if it stores none or the folder no longer
    exists.
    """
    folder = (run.resolve() / relative).resolve() if isinstance(relative, str) and relative else None
    return str(folder) if folder is not None and folder.is_dir() else ""
