"""Collect names and summaries for ``fedassay list`` without importing torch or the listed files."""

import inspect
import itertools
from typing import Any

from ...audit.outside import points
from .part_files import PACKAGE, Kind, PartFile, files_with, own_parts, part_classes

_CONTROLS = f"{PACKAGE}.defenses.controls"
_MECHANISMS = "defenses.controls.mechanisms"


def cases(below: str) -> dict[str, PartFile]:
    """Return the classes of all cases: below ``pairs`` those of a broken and a correct version, below ``correct`` the
    unusual correct ones.
    """
    return part_classes("defenses.controls", below, "Case")


def summaries(kind: Kind) -> dict[str, str]:
    """Return a dictionary from the name of every defense (or attack) to the first line of its file's docstring, in
    alphabetical order.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    installed = {name: summary(part) for name, part in _installed(kind).items()}
    # The package's own parts come last, so that they win over an entry point of the same name.
    return dict(sorted((installed | {name: part.summary for name, part in own_parts(kind).items()}).items()))


def mutant_summaries() -> dict[str, str]:
    """Return a dictionary with one entry per mutant (a mechanism with a planted bug) and per unusual correct case. A
    value states how it is audited (``mechanism``, ``federation``, ``pair`` or ``correct case``), followed by its first
    docstring line.
    """
    # Not those of other kinds of federations, which lie in folders of their own: they run in no federation of clients.
    controls = [part for part in own_parts("defense").values() if part.module.rpartition(".")[0] == _CONTROLS]
    own = {part.name: part.summary for part in controls}
    installed = {name: summary(part) for name, part in _installed("defense").items() if part.control}
    kinds = {
        "mechanism": dict(files_with("mutant", _MECHANISMS)),
        "federation": own | installed,
        "pair": {name: part.summary for name, part in cases("pairs").items()},
        "correct case": {name: part.summary for name, part in cases("correct").items()},
    }
    return {name: f"{kind}: {words}" for kind, found in kinds.items() for name, words in found.items()}


def all_errata(kind: Kind) -> dict[str, tuple[str, ...]]:
    """Return a dictionary from the name of each defense or attack to its errata (notes on its paper), in alphabetical
    order; those without errata are left out.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    installed = {name: errata_in(inspect.getdoc(part) or "") for name, part in _installed(kind).items()}
    found = installed | {name: errata_in(part.doc) for name, part in own_parts(kind).items()}
    return {name: items for name, items in sorted(found.items()) if items}


def summary(part: type[Any]) -> str:
    """Return the first docstring line of the file of a defense or attack, or of its class if the file has none."""
    module = inspect.getmodule(part)
    return (inspect.getdoc(module) or inspect.getdoc(part) or "").partition("\n")[0]


def errata_in(doc: str) -> tuple[str, ...]:
    """Return the items of a docstring's ``Errata:`` section; empty if there is none.

    Each item starts with its class, ``False:``, ``Loose but valid:``, ``Slip:`` or ``Not stated:``, and ends with what
    the code does, ``Here: ...``.
    """
    _, _, section = doc.partition("\nErrata:\n")
    lines = itertools.takewhile(lambda line: line.startswith(" "), section.splitlines())
    items: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("- "):
            items.append(line.removeprefix("- "))
        else:
            # A line without a dash continues the item above it.
            items[-1] += f" {line}"
    return tuple(items)


def _installed(kind: Kind) -> dict[str, type[Any]]:
    """The parts of entry points; the catalogue, which loads torch, is imported only where there are any."""
    if not points(kind):
        return {}
    from .catalogue import from_entry_points

    return from_entry_points(kind)
