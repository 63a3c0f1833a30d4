"""Find defenses and attacks by file name or from outside, and build them from their configuration."""

from dataclasses import dataclass, fields
from typing import Any, cast

from pydantic import BaseModel

from ...audit.parts import find_outside, points, version_of
from ...audit.wording import nearest
from .part_files import Kind, own_parts
from .source import ConfigError
from .tables.suite import AttackSpec, DefenseSpec

_WORDS: dict[Kind, str] = {
    "defense": "Defense, VerticalDefense or TransferDefense",
    "attack": "Attack, VerticalAttack or VoteAttack",
}
_TABLES: dict[Kind, type[BaseModel]] = {"defense": DefenseSpec, "attack": AttackSpec}


def _base(kind: Kind) -> type[Any]:
    """The base class of the parts of this kind; loads torch."""
    if kind == "defense":
        from ...defenses.defense import DefensePart

        return DefensePart
    from ...attacks.attack import AttackPart

    return AttackPart


@dataclass(frozen=True)
class Part:
    """A defense or an attack with its configuration; ``path`` names its class, and ``version`` changes when its code
    changes.
    """

    path: str
    instance: Any
    version: str


def from_entry_points(kind: Kind) -> dict[str, type[Any]]:
    """Return a dictionary from names to classes of the defenses or attacks that other installed packages offer; raise
    ConfigError for one that does not load.
    """
    return {name: find(kind, f"{point.module}:{point.attr}") for name, point in points(kind).items()}


def find(kind: Kind, name: str) -> type[Any]:
    """Find the class of a defense or attack: by its file name, by its entry point, as ``package.module:Class`` or as
    ``file.py:Class``.

    Raises:
        ConfigError: for an unknown name (the message lists the nearest known first), a module that does not import, or
            something that is no class of this kind.
    """
    own = own_parts(kind)
    if name in own:
        return cast(type[Any], own[name].load())
    try:
        part = find_outside(kind, name, own)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not (isinstance(part, type) and issubclass(part, _base(kind))):
        raise ConfigError(f"{kind} {name!r} must be a subclass of fedassay's {_WORDS[kind]}, got {part!r}")
    return part


def build(kind: Kind, name: str, configuration: dict[str, Any], *, where: str = "") -> Part:
    """Build a defense or attack from its class and its configuration.

    Raises:
        ConfigError: as ``find``, and for an unknown field or a value that the part refuses; starts with ``where``.
    """
    part, place = find(kind, name), f"{where}: " if where else ""
    _check_fields(part, name, kind, place)
    # Checked before the call, whose TypeError would not list the known fields.
    known = [field.name for field in fields(part)]
    for key in configuration:
        if key not in known:
            own = f"it has: {nearest(key, known)}" if known else "it has none"
            raise ConfigError(f"{place}{name} has no field {key!r}; {own}")
    try:
        instance = part(**configuration)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}{name}: {error}") from None
    return Part(path=name, instance=instance, version=version_of(part))


def part_from_instance(instance: Any, kind: Kind) -> Part:
    """Describe a defense or attack that the caller built as an object, such as ``MyDefense(clip_norm=1.0)``."""
    if not isinstance(instance, _base(kind)):
        got = f"the class {instance.__name__}" if isinstance(instance, type) else type(instance).__name__
        raise ConfigError(f"{kind} must be an instance of {_WORDS[kind]}, got {got}")
    owner = type(instance)
    ours = {(part.module, part.class_name): name for name, part in own_parts(kind).items()}
    path = ours.get((owner.__module__, owner.__qualname__), f"{owner.__module__}:{owner.__qualname__}")
    _check_fields(owner, path, kind)
    return Part(path=path, instance=instance, version=version_of(owner))


def _check_fields(part: type[Any], name: str, kind: Kind, place: str = "") -> None:
    """Raise ConfigError for a field named like a reserved key of a suite's table, which would take its value."""
    reserved = _TABLES[kind].model_fields
    if taken := [field.name for field in fields(part) if field.name in reserved]:
        keys = ", ".join(reserved)
        raise ConfigError(
            f"{place}{name}: rename its field {taken[0]!r}, because a suite file reserves the keys {keys} of {kind}s"
        )
