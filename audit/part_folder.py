"""Lists the parts of a folder that holds one part per file: the function or class has the file's name."""

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def names_in(package: str) -> tuple[str, ...]:
    """Return the names of the files of a package's folder in alphabetical order; none of them is imported."""
    found = importlib.import_module(package)
    # Sorted, so that the order of tables does not depend on the file system.
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(found.__path__) if not entry.ispkg))


def part_in(package: str, name: str) -> Any:
    """Import the file ``name`` of a package's folder and return what it defines under its own name."""
    return getattr(importlib.import_module(f"{package}.{name}"), name)
