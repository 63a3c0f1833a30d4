"""Import a suite's own modules from the suite file's folder, whatever the current folder is."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from ...audit.parts import is_path, name_and_options
from ...fl.data.files.lookup import names_a_file
from .outside_parts import parts_in
from .source import ConfigError
from .tables.suite import Suite


def folder_of_suite(suite_file: Path) -> str:
    """Return the folder of a suite file as text, ready to be added to ``sys.path``."""
    return str(suite_file.resolve().parent)


def paths_of(spec: Suite) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place and the name of each part that the suite names as ``package.module:Name`` or ``file.py:Name``,
    which may lie in the suite file's folder.
    """
    tables: dict[tuple[str, ...], BaseModel | None] = {("audit",): spec.audit}
    tables.update(spec.federation_tables)
    tables |= {("defenses", name, "plan"): one.plan for name, one in spec.defenses.items()}
    named = [((*place, key), kind, value) for place, table in tables.items() for key, kind, value in parts_in(table)]
    named += [(("defenses", name, "part"), "defense", one.part or name) for name, one in spec.defenses.items()]
    named += [(("attacks", name, "part"), "attack", one.part or name) for name, one in spec.attacks.items()]
    yield from ((place, name_and_options(kind, value)[0]) for place, kind, value in named if is_path(kind, value))


def names_data_files(spec: Suite) -> bool:
    """Return whether the suite names a data set by a path, which may be relative to the suite file's folder."""
    given = [one.dataset for one in spec.all_federations.values()]
    given += [spec.audit.dataset] if spec.audit is not None and spec.audit.dataset is not None else []
    return any(names_a_file(name_and_options("dataset", one)[0]) for one in given)


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
    name, colon, _ = part.rpartition(":")
    # A file is found by its path, and `audit.parts` compares it with the loaded module.
    if not (folder and colon) or name.endswith(".py") or name not in sys.modules:
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
