"""Conformance: what must hold for every part that the catalogue finds; of its kind alone, see the folders' own."""

import dataclasses
import importlib
import json
import math
import pkgutil
import re
from abc import ABC
from types import ModuleType

import pytest
from fedassay.attacks.attack import Attack
from fedassay.defenses.defense import Defense
from fedassay.suites.config.catalogue import parts_by_name
from fedassay.suites.config.part_files import own_parts
from fedassay.suites.config.part_listing import summary

DEFENSES, ATTACKS = parts_by_name("defense"), parts_by_name("attack")
PARTS = [pytest.param(part, id=name) for found in (DEFENSES, ATTACKS) for name, part in found.items()]
BASES = {"defense": Defense, "attack": Attack}
FOLDERS = {"defense": ["defenses"], "attack": ["attacks.gradient", "attacks.labels", "attacks.membership"]}


def parts_in(module: ModuleType, base: type) -> list[type]:
    """The public classes of the kind that a file defines and that are no base of others."""
    return [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value is not base
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and ABC not in value.__bases__
    ]


@pytest.mark.parametrize("kind", BASES)
def test_the_parts_read_from_text_are_those_that_importing_every_file_finds(kind):
    found = {}
    for folder in FOLDERS[kind]:
        package = importlib.import_module(f"fedassay.{folder}")
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if held := parts_in(importlib.import_module(entry.name), BASES[kind]):
                assert len(held) == 1, f"{entry.name} defines {held}"
                found[entry.name.rpartition(".")[2]] = held[0]
    assert len(found) > 40
    assert {name: part.load() for name, part in own_parts(kind).items()} == found
    assert {name: parts_by_name(kind)[name] for name in found} == found


@pytest.mark.parametrize("count", [0, 1, 2])
def test_that_check_counts_parts(count):
    module = ModuleType("part_file")
    for number in range(count):
        setattr(module, f"Part{number}", type(f"Part{number}", (Defense,), {"__module__": "part_file"}))
    module._Hidden = type("_Hidden", (Defense,), {"__module__": "part_file"})
    module.Imported = Defense
    assert len(parts_in(module, Defense)) == count


@pytest.mark.parametrize("name", [*DEFENSES, *ATTACKS])
def test_its_file_begins_with_one_sentence(name):
    line = summary({**DEFENSES, **ATTACKS}[name])
    assert re.fullmatch(r"[A-Zi].*[^.]\.", line), f"must be a whole sentence, got {line!r}"
    assert not re.search(r"[.!?] [A-Z]", line), f"must be one sentence, got {line!r}"


@pytest.mark.parametrize("part", PARTS)
def test_it_is_frozen_and_its_plain_fields_rebuild_it(part):
    built = part()
    assert part(**json.loads(json.dumps(built.fields()))) == built
    assert set(built.fields()) == {field.name for field in dataclasses.fields(part)}
    for name in built.fields():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(built, name, 1)


@pytest.mark.parametrize("part", PARTS)
def test_it_has_a_version(part):
    assert re.fullmatch(r"\d+(\.\d+)*", part.version)


def bad_values(default):
    """What a field with this default must refuse."""
    if isinstance(default, bool):
        return []
    if isinstance(default, int):
        return [-1, default + 0.5, math.nan]
    if isinstance(default, float):
        return [-1.0, math.nan, math.inf]
    return ["no such thing"] if isinstance(default, str) else []


BAD = [
    pytest.param(part, name, bad, id=f"{label}-{name}-{bad}")
    for found in (DEFENSES, ATTACKS)
    for label, part in found.items()
    for name, default in part().fields().items()
    for bad in bad_values(default)
]


@pytest.mark.parametrize(("part", "name", "bad"), BAD)
def test_a_bad_field_is_refused_by_its_name_and_value(part, name, bad):
    with pytest.raises(ValueError, match=rf"{name} must .*{re.escape(repr(bad))}"):
        part(**{name: bad})
