"""Find defenses and attacks by file name, by entry point or as ``package.module:Class``."""

import hashlib
import importlib
import inspect
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from pydantic import BaseModel

from ...audit.nearest import nearest
from .part_files import Kind, own_parts
from .source import ConfigError
from .suite import AttackSpec, DefenseSpec

_ROOT = __package__.split(".")[0]
_TABLES: dict[Kind, type[BaseModel]] = {"defense": DefenseSpec, "attack": AttackSpec}


def _base(kind: Kind) -> type[Any]:
    """The base class of the parts of this kind; loads torch."""
    if kind == "defense":
        from ...defenses.defense import Defense

        return Defense
    from ...attacks.attack import Attack

    return Attack


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
    return {name: _loaded(point, kind) for name, point in _points(kind).items()}


def _points(kind: Kind) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"fedassay.{kind}s")}


def _loaded(point: EntryPoint, kind: Kind) -> type[Any]:
    return _from_path(kind, f"{point.module}:{point.attr}", of=f"entry point {point.name!r}")


def find(kind: Kind, name: str) -> type[Any]:
    """Find the class of a defense or attack: by its file name, by its entry point, or as ``package.module:Class``.

    Raises:
        ConfigError: for an unknown name (the message lists the nearest known first), a module that does not import, or
            something that is no class of this kind.
    """
    if ":" in name:
        return _from_path(kind, name)
    own, points = own_parts(kind), _points(kind)
    if name in own:
        return cast(type[Any], own[name].load())
    if name in points:  # Only this entry point is loaded: another package's broken one must not stop the run.
        return _loaded(points[name], kind)
    known = nearest(name, [*own, *points])
    raise ConfigError(f"unknown {kind} {name!r}; known: {known}; name a class of your own as package.module:Class")


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
            raise ConfigError(f"{place}{name} has no field {key!r}; it has: {nearest(key, known)}")
    try:
        instance = part(**configuration)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}{name}: {error}") from None
    return Part(path=name, instance=instance, version=version_of(part))


def part_from_instance(instance: Any, kind: Kind) -> Part:
    """Describe a defense or attack that the caller built as an object, such as ``MyDefense(clip_norm=1.0)``."""
    if not isinstance(instance, _base(kind)):
        got = f"the class {instance.__name__}" if isinstance(instance, type) else type(instance).__name__
        raise ConfigError(f"a {kind} must be an instance of {_base(kind).__name__}, got {got}")
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
            f"{place}{name}: rename its field {taken[0]!r}, because a suite file reserves the keys {keys} of a {kind}"
        )


def version_of(part: type[Any]) -> str:
    """Return the version of a defense or attack; for a class from outside the package, the version includes a digest of
    its source.

    The digest is needed because authors edit their part without changing its version.
    """
    version = str(part.version)
    if part.__module__.startswith(f"{_ROOT}."):
        return version
    try:
        source = inspect.getsource(inspect.getmodule(part) or part)
    except (OSError, TypeError):
        source = ""
    return f"{version}+{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def _from_path(kind: Kind, name: str, *, of: str = "") -> type[Any]:
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # A user's module may raise anything on import, sys.exit() included.
        reason = f"cannot import {module_name}: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0] and not of:
            reason += "; it is searched in the suite file's folder, the current folder and the installed packages"
        raise ConfigError(f"{of or kind} {name!r}: {reason}") from error
    if not hasattr(module, class_name):
        base = _base(kind)
        classes = [key for key, one in vars(module).items() if isinstance(one, type) and issubclass(one, base)]
        raise ConfigError(
            f"{of or kind} {name!r}: {module_name} has no {class_name!r}; it has: {nearest(class_name, classes)}"
        )
    return _as_part(getattr(module, class_name), name, kind)


def _as_part(part: Any, name: str, kind: Kind) -> type[Any]:
    if not (isinstance(part, type) and issubclass(part, _base(kind))):
        raise ConfigError(f"{kind} {name!r} must be a subclass of fedassay's {_base(kind).__name__}, got {part!r}")
    return part
