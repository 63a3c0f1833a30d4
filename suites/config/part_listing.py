"""Collect the names of parts and suites, with summaries, without importing torch or the listed files."""

import inspect
import itertools
from importlib import resources
from typing import Any

from ...audit.parts import points
from .part_files import PACKAGE, Kind, PartFile, own_parts, part_classes, part_files

_FAULTS = "defenses.controls"
_CONTROLS = {"vertical": "vertical federation", "transfer": "transfer"}
"""The files of controls that are no federations of clients, and the kinds of mutants that they hold."""
_BASES = {"Defense": "federation", "VerticalDefense": "vertical federation", "TransferDefense": "transfer"}
"""The kinds of mutants of controls of other packages, by the class that they derive from."""

_OF_BASES = {
    "VerticalDefense": "vertical",
    "VerticalAttack": "vertical",
    "TransferDefense": "transfer",
    "VoteAttack": "transfer",
}
"""The kinds of federations of parts, by the class that they derive from; all others run on horizontal ones."""
_MEMBERSHIP = ("attacks.membership",)
_ON_STUDENTS = "horizontal, transfer"
"""Attacks on the final model run on shadow students too."""


def mechanism_faults() -> dict[str, PartFile]:
    """Return the mechanisms with a planted bug that belong to no federation."""
    return part_classes(_FAULTS, "Mechanism")


def faults() -> dict[str, PartFile]:
    """Return the cases that consist of a broken and a correct version of a protection."""
    return part_classes(_FAULTS, "Fault")


def correct_cases() -> dict[str, PartFile]:
    """Return the correct but unusual cases of protections, which an audit might refute wrongly."""
    return part_classes(_FAULTS, "ProtectionCase", other_than="Fault")


def controls() -> dict[str, tuple[str, PartFile]]:
    """Return a dictionary from the name of each of the package's own controls (defenses that are broken on purpose) to
    the kind of its mutants and to its file, in alphabetical order.
    """
    homes = {name: (part.module.rpartition("."), part) for name, part in own_parts("defense").items()}
    return {
        name: (_CONTROLS.get(file, "federation"), part)
        for name, ((folder, _, file), part) in homes.items()
        if folder == f"{PACKAGE}.{_FAULTS}"
    }


def control_kind(part: type[Any]) -> str:
    """Return the kind of mutants (mechanisms with a planted bug) to which a deliberately broken defense of another
    package belongs.
    """
    return next(_BASES[base.__name__] for base in part.__mro__ if base.__name__ in _BASES)


def summaries(kind: Kind) -> dict[str, str]:
    """Return a dictionary from the name of every defense (or attack) to the first line of its file's docstring, in
    alphabetical order.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    installed = {name: summary(part) for name, part in _installed(kind).items()}
    # The package's own parts come last, so that they win over an entry point of the same name.
    return dict(sorted((installed | {name: part.summary for name, part in own_parts(kind).items()}).items()))


def federation_kinds(kind: Kind) -> dict[str, str]:
    """Return a dictionary from the name of every defense (or attack) to the kinds of federations on which it runs. The
    kinds are ``horizontal``, ``vertical`` and ``transfer``; a comma separates several of them.

    Raises:
        ConfigError: an installed entry point that does not load.
    """
    installed = {name: _by_class(part) for name, part in _installed(kind).items()}
    return installed | {name: _by_file(part) for name, part in own_parts(kind).items()}


def _by_file(part: PartFile) -> str:
    found = [one for one in ("vertical", "transfer") if f".{one}." in f"{part.module}."]
    with_shadows = part_files(_MEMBERSHIP, ("ShadowAttack",))
    on_final = part.name in part_files(_MEMBERSHIP, ("MembershipAttack",)) and part.observer == "FINAL_MODEL"
    return found[0] if found else _ON_STUDENTS if on_final or part.name in with_shadows else "horizontal"


def _by_class(part: type[Any]) -> str:
    names = [base.__name__ for base in part.__mro__]
    found = [kind for name, kind in _OF_BASES.items() if name in names]
    if found:
        return found[0]
    on_final = "MembershipAttack" in names and str(getattr(part, "observer", "")) == "final_model"
    return _ON_STUDENTS if on_final else "horizontal"


def mutant_summaries() -> dict[str, str]:
    """Return a dictionary with one entry per mutant (a mechanism with a planted bug) and per unusual correct case. A
    value states how it is audited (``mechanism``, ``federation``, ``vertical federation``, ``transfer``, ``pair`` or
    ``correct case``), followed by its first docstring line.
    """
    own = {name: f"{kind}: {part.summary}" for name, (kind, part) in controls().items()}
    installed = {
        name: f"{control_kind(part)}: {summary(part)}" for name, part in _installed("defense").items() if part.control
    }
    found = {name: f"mechanism: {part.summary}" for name, part in mechanism_faults().items()} | own | installed
    for kind, parts in (("pair", faults()), ("correct case", correct_cases())):
        found |= {name: f"{kind}: {part.summary}" for name, part in parts.items()}
    return found


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


def bundled_suites() -> dict[str, str]:
    """Return a dictionary from the name of each bundled suite to its TOML text; suites that repeat a paper's
    experiments have names ``papers/NAME``.
    """
    folder = resources.files(__package__.rpartition(".")[0])
    places = {"": folder, "papers/": folder / "papers"}
    files = [(prefix + entry.name, entry) for prefix, place in places.items() for entry in place.iterdir()]
    return {
        name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        # The package's own suites first, then those of papers; a folder lists its files in no fixed order.
        for name, entry in sorted(files, key=lambda file: ("/" in file[0], file[0]))
        if name.endswith(".toml")
    }
