"""Find the parts that a suite names: the package's defenses and attacks by file name, and parts from outside the
package.

The versions of parts from outside enter the identity of cells. A suite's own modules are imported from the suite file's
folder, whatever the current folder is.
"""

import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from pydantic import BaseModel

from ...audit.parts import KINDS, Spec, find_outside, is_path, label, name_and_options, points, two_files, version_of
from ...audit.wording import nearest
from ...checks.canaries import CANARIES
from ...fl.algorithms import KNOWN_ALGORITHMS
from ...fl.data.datasets import KNOWN_DATASETS
from ...fl.data.files.lookup import names_a_file
from ...fl.models.small_models import known_models
from ...fl.partitions import KNOWN_PARTITIONS
from .part_files import Kind, own_parts
from .source import ConfigError
from .tables.suite import AttackSpec, DefenseSpec, Suite

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
    return {name: find(kind, name) for name in points(kind)}


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


def build(kind: Kind, name: str, configuration: dict[str, Any]) -> Part:
    """Build a defense or attack from its class and its configuration.

    Raises:
        ConfigError: as ``find``, and for an unknown field or a value that the part refuses.
    """
    part = find(kind, name)
    _check_fields(part, name, kind)
    # Checked before the call, whose TypeError would not list the known fields.
    known = [field.name for field in fields(part)]
    for key in configuration:
        if key not in known:
            own = f"it has: {nearest(key, known)}" if known else "it has none"
            raise ConfigError(f"{name} has no field {key!r}; {own}")
    try:
        instance = part(**configuration)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from None
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


# A field may replace a property, which states a value that other parts compute.
_METHODS = (FunctionType, classmethod, staticmethod)


def _check_fields(part: type[Any], name: str, kind: Kind) -> None:
    """Raise ConfigError for a field named like a reserved key of a suite's table, which would take its value; for one
    named like a method of a class before, or like what the root of all parts states, which it would replace; and for
    one that a class sets without being a dataclass itself, so that its parts have the value of the class before.
    """
    reserved = _TABLES[kind].model_fields
    if taken := [field.name for field in fields(part) if field.name in reserved]:
        keys = ", ".join(reserved)
        raise ConfigError(
            f"{name}: rename its field {taken[0]!r}, because a suite file reserves the keys {keys} of {kind}s"
        )
    for field in fields(part):
        for base in part.__mro__[1:]:
            if isinstance(found := vars(base).get(field.name), _METHODS) or (found is not None and base is _base(kind)):
                raise ConfigError(
                    f"{name}: rename its field {field.name!r}, which shadows {base.__name__}.{field.name} of its base "
                    "class"
                )
        owner = next(one for one in part.__mro__ if field.name in {*vars(one), *inspect.get_annotations(one)})
        if "__dataclass_fields__" not in vars(owner) or field.name not in inspect.get_annotations(owner):
            value = vars(owner).get(field.name)
            example = f"{type(value).__name__} = {value!r}" if isinstance(value, int | float | str) else "float = 1.0"
            raise ConfigError(
                f"{name}: {field.name!r} has no effect as class {owner.__name__} states it: decorate the class "
                f"with @dataclass(frozen=True, kw_only=True) and annotate the field, as in {field.name}: {example}"
            )


KEYS = {
    "dataset": "dataset",
    "model": "model",
    "partition": "partition",
    "preparation": "preparation",
    "cohort": "sampling",
    "lot": "sampling",
    "algorithm": "algorithm",
    "canary": "canary",
    "estimator": "estimator",
}
"""The keys of a suite's tables that name parts, with the kind of each."""


def parts_in(table: BaseModel | None) -> Iterator[tuple[str, str, Spec]]:
    """Yield the key, the kind and the value of each part that one of a suite's tables names."""
    for key, kind in KEYS.items():
        value = getattr(table, key, None)
        if isinstance(value, str) or (isinstance(value, dict) and _is_named(kind, value)):
            yield key, kind, value


def outside_versions(tables: Iterable[BaseModel | None]) -> dict[str, str]:
    """Return the version of each part from outside the package that the tables name, including a digest of its source.
    The package's own parts have no entry and so do not change the identity of a cell (unit of work).
    """
    found: dict[str, str] = {}
    for _, kind, value in (part for table in tables for part in parts_in(table)):
        name, _ = name_and_options(kind, value)
        if is_outside(kind, name):
            found[f"{kind} {label(kind, value)}"] = version_of(find_outside(kind, name), name)
    return found


def is_outside(kind: str, name: str) -> bool:
    """Return whether a name refers to a part from outside the package. Such a name is a path, or an entry point whose
    name no part of the package has.
    """
    return ":" in name or (name not in own_names(kind) and name in points(kind))


def own_names(kind: str) -> tuple[str, ...]:
    """Return the names of the package's own parts of one kind: data sets, models, algorithms, partitions, sampling
    rules, canaries or estimators.
    """
    if kind == "estimator":
        # Imported here, because estimators load scipy, which most suites do not need in order to be read.
        from ...audit.estimators.catalogue import estimators

        return tuple(estimators())
    known: dict[str, Iterable[str]] = {
        "dataset": KNOWN_DATASETS,
        "model": known_models(),
        "algorithm": KNOWN_ALGORITHMS,
        "partition": KNOWN_PARTITIONS,
        "sampling": ("full", "poisson", "fixed_size", "epoch"),
        "canary": CANARIES,
        # Every preparation is a project's own.
        "preparation": (),
    }
    return tuple(known[kind])


def _is_named(kind: str, table: dict[str, Any]) -> bool:
    try:
        name_and_options(kind, table)
    except ValueError:
        return False
    return kind in KINDS


def tables_with_parts(spec: Suite) -> dict[tuple[str, ...], BaseModel | None]:
    """Return the tables of a suite in which keys name parts (other than defenses and attacks), keyed by their
    places.
    """
    plans: dict[tuple[str, ...], BaseModel | None] = {
        ("defenses", name, "plan"): one.plan for name, one in spec.defenses.items()
    }
    return {("audit",): spec.audit, **spec.federation_tables, **plans}


def paths_of(spec: Suite) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place and the name of each part that the suite names as ``package.module:Name`` or ``file.py:Name``,
    which may lie in the suite file's folder.
    """
    tables = tables_with_parts(spec).items()
    named = [((*place, key), kind, value) for place, table in tables for key, kind, value in parts_in(table)]
    named += [(("defenses", name, "part"), "defense", one.part or name) for name, one in spec.defenses.items()]
    named += [(("attacks", name, "part"), "attack", one.part or name) for name, one in spec.attacks.items()]
    yield from ((place, name_and_options(kind, value)[0]) for place, kind, value in named if is_path(kind, value))


def names_data_files(spec: Suite) -> bool:
    """Return whether the suite names a data set or a recording by a path, which may be relative to the suite file's
    folder.
    """
    if any(one.recording is not None for one in spec.federations.values()):
        return True
    given = [one.dataset for one in spec.all_federations.values()]
    given += [spec.audit.dataset] if spec.audit is not None and spec.audit.dataset is not None else []
    return any(names_a_file(name_and_options("dataset", one)[0]) for one in given)


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
    # A folder without the module is no conflict: the part was then meant to come from an installed package.
    if found := two_files(name, Path(folder)):
        raise ConfigError(
            f"{name} is already loaded from {found[0]}, but the suite needs {found[1]}: a process loads one module per "
            "name; rename one of them, or run them in separate processes"
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
