"""Suite file: a suite read from a file or from the package, every mistake told with its line."""

import math
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ...audit.nearest import nearest
from .margins import GateSpec
from .plugin_path import folder_of_suite
from .presets import apply_preset
from .published import Published
from .source import ConfigError, Source, apply_override
from .suite import AttackSpec, AuditSpec, FederationSpec, MutantsSpec, PlanChange, SuiteSpec


def bundled_suites() -> dict[str, str]:
    """Names of the suites that come with the package, with their texts; those that repeat papers: ``papers/NAME``."""
    folder = resources.files(__package__.rpartition(".")[0])
    places = {"": folder, "papers/": folder / "papers"}
    files = [(prefix + entry.name, entry) for prefix, place in places.items() for entry in place.iterdir()]
    return {
        name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for name, entry in sorted(files, key=lambda file: ("/" in file[0], file[0]))
        if name.endswith(".toml")
    }


def load_suite(name: str, *, preset: str | None = None, overrides: tuple[str, ...] = ()) -> tuple[SuiteSpec, Source]:
    """A bundled suite by name, or a suite file by path, as one of its presets changes it, with ``key=value`` overrides.

    Raises:
        ConfigError: no such suite, not TOML, unknown keys, bad values; the message gives file, line and the nearest
        known name.
    """
    bundled, path = bundled_suites(), Path(name)
    if name in bundled:
        source = Source(f"{name}.toml", bundled[name])
    elif path.is_file():
        try:
            source = Source(str(path), path.read_text(encoding="utf-8-sig"), folder=folder_of_suite(path))
        except UnicodeDecodeError:
            raise ConfigError(f"{name}: not a TOML file: it is not UTF-8 text") from None
    else:
        raise ConfigError(f"no suite {name!r}: it is neither a file nor a bundled suite ({nearest(name, bundled)})")
    tree = source.parse()
    if preset is not None:
        check_suite(source.parse(), source)  # Of the file as it stands: then its presets are tables.
        apply_preset(tree, preset, source)
    keys = tuple(apply_override(tree, assignment) for assignment in overrides)
    led_in = [key for key in keys if key.startswith("mutants.")]
    if led_in and "mutants" not in source.parse():
        raise ConfigError(f"--set {led_in[0]}: the suite has no [mutants] table, and one would add every mutant to it")
    source = replace(source, overrides=keys, preset=preset or "")
    spec = check_suite(tree, source)
    return spec.model_copy(update={"presets": {}}), source


def named_changes(**wished: int | str | None) -> tuple[str, ...]:
    """Overrides ``key=value`` of the keys that are wished otherwise: not None."""
    return tuple(f"{key}={value}" for key, value in wished.items() if value is not None)


def check_suite(tree: dict[str, Any], source: Source) -> SuiteSpec:
    """A parsed suite as a checked one; ConfigError as in ``load_suite``."""
    endless = next(_endless(tree, ()), None)
    if endless is not None:
        raise ConfigError(f"{source.where(endless)}: {'.'.join(endless)} must be finite")
    # A suite of mutants alone needs neither; any other lacks them like any field that it must have.
    spare: dict[str, Any] = {} if tree.get("mutants") is None else {"federations": {}, "defenses": {}}
    try:
        return SuiteSpec.model_validate(spare | tree)
    except ValidationError as error:
        lines = [_explain(dict(item), source) for item in error.errors()]
        raise ConfigError(*dict.fromkeys(lines)) from None


def _endless(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Places of numbers that no manifest can hold: TOML knows nan and inf, JSON does not."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _endless(item, (*path, str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from _endless(item, path)
    elif isinstance(value, float) and not math.isfinite(value):
        yield path


def _explain(item: dict[str, Any], source: Source) -> str:
    path = tuple(str(part) for part in item["loc"] if part != "[key]")
    if item["type"] == "misplaced":
        path = tuple(item["ctx"]["place"].split("."))
    place = source.where(path)
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key {name!r}; known here: {nearest(path[-1], _fields_at(path[:-1]))}"
    if item["type"] == "missing":
        return f"{place}: {name} is missing"
    return f"{place}: {name}: {item['msg'].removeprefix('Value error, ')}".replace(": : ", ": ")


def _fields_at(path: tuple[str, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {
        "federations": FederationSpec,
        "defenses": PlanChange,
        "attacks": AttackSpec,
        "audit": AuditSpec,
        "mutants": MutantsSpec,
        "published": Published,
        "gate": GateSpec,
    }
    table = tables.get(path[0], SuiteSpec) if path else SuiteSpec
    return list(table.model_fields)
