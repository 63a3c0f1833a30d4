"""Part listing: what ``fedassay list`` says of parts; imports none of the package's own, for that loads torch."""

import inspect
import itertools
from importlib.metadata import entry_points
from typing import Any

from .part_files import Kind, own_parts


def summaries(kind: Kind) -> dict[str, str]:
    """Every part by name with the first line of its file, in order.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    foreign = {name: summary(part) for name, part in _foreign(kind).items()}
    return dict(sorted((foreign | {name: part.summary for name, part in own_parts(kind).items()}).items()))


def all_errata(kind: Kind) -> dict[str, tuple[str, ...]]:
    """The errata of every part that has any, in order of the names.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    foreign = {name: errata_in(inspect.getdoc(part) or "") for name, part in _foreign(kind).items()}
    found = foreign | {name: errata_in(part.doc) for name, part in own_parts(kind).items()}
    return {name: items for name, items in sorted(found.items()) if items}


def summary(part: type[Any]) -> str:
    """First line of the docstring of a part's file, or of the part."""
    module = inspect.getmodule(part)
    return (inspect.getdoc(module) or inspect.getdoc(part) or "").partition("\n")[0]


def errata_in(doc: str) -> tuple[str, ...]:
    """The items of a docstring's ``Errata:`` section: where a paper differs from what is right; none for most."""
    _, _, section = doc.partition("\nErrata:\n")
    lines = itertools.takewhile(lambda line: line.startswith(" "), section.splitlines())
    items: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("- "):
            items.append(line.removeprefix("- "))
        else:
            items[-1] += f" {line}"
    return tuple(items)


def _foreign(kind: Kind) -> dict[str, type[Any]]:
    if not entry_points(group=f"fedassay.{kind}s"):
        return {}
    from .catalogue import from_entry_points

    return from_entry_points(kind)
