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
from fedassay.attacks.attack import AttackPart
from fedassay.defenses.defense import Defense, DefensePart
from fedassay.suites.config.part_files import own_parts
from known_parts import all_parts

DEFENSES, ATTACKS = all_parts("defense"), all_parts("attack")
PARTS = [pytest.param(part, id=name) for found in (DEFENSES, ATTACKS) for name, part in found.items()]
BASES = {"defense": DefensePart, "attack": AttackPart}
FOLDERS = {
    "defense": ["defenses"],
    "attack": [f"attacks.{one}" for one in ("gradient", "labels", "membership", "text", "vertical", "transfer")],
}


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


def in_words(name: str) -> str:
    """ControlNoClip -> control_no_clip."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize("kind", BASES)
def test_the_parts_read_from_text_are_those_that_importing_every_file_finds(kind):
    found = {}
    for folder in FOLDERS[kind]:
        package = importlib.import_module(f"fedassay.{folder}")
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            held = parts_in(importlib.import_module(entry.name), BASES[kind])
            controls = {in_words(one.__name__): one for one in held if one.__name__.startswith("Control")}
            assert len(held) == len(controls) or len(held) == 1, f"{entry.name} defines {held}"
            found |= controls or {entry.name.rpartition(".")[2]: one for one in held}
    assert len(found) > 40
    assert {name: part.load() for name, part in own_parts(kind).items()} == found
    assert all_parts(kind) == found


@pytest.mark.parametrize("count", [0, 1, 2])
def test_that_check_counts_parts(count):
    module = ModuleType("part_file")
    for number in range(count):
        setattr(module, f"Part{number}", type(f"Part{number}", (Defense,), {"__module__": "part_file"}))
    module._Hidden = type("_Hidden", (Defense,), {"__module__": "part_file"})
    module.Imported = Defense
    assert len(parts_in(module, Defense)) == count


@pytest.mark.parametrize("name", [*DEFENSES, *ATTACKS])
def test_its_description_begins_with_one_sentence(name):
    line = (own_parts("defense") | own_parts("attack"))[name].summary
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


def unrefused(part):
    """Every bad value that the part takes, or refuses without the field's name and the value."""
    found = []
    for name, default in part().fields().items():
        for bad in bad_values(default):
            refusal = "taken"
            try:
                part(**{name: bad})
            except Exception as error:
                refusal = f"{type(error).__name__}: {error}"
            if not re.search(rf"^ValueError: .*\b{name}\b.* must .*{re.escape(repr(bad))}", refusal, re.DOTALL):
                found.append(f"{name}={bad!r}: {refusal}")
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_bad_field_is_refused_by_its_name_and_value(part):
    assert unrefused(part) == [], f"{part.__module__}: bad values that are taken, or refused in other words"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Careless(Defense):
    """Checks one of its fields, names another one wrongly, and lets a third raise an error of another kind."""

    checked: int = 3
    unchecked: float = 0.5
    misnamed: str = "a"
    untyped: int = 2

    def __post_init__(self):
        if self.checked < 0 or self.checked != int(self.checked):
            raise ValueError(f"checked must be a whole number >= 0, got {self.checked!r}")
        if self.misnamed != "a":
            raise ValueError(f"name must be a, got {self.misnamed!r}")
        [0] * self.untyped  # Half a number of times is a TypeError, -1 is taken.

    def prepare(self, plan):
        raise NotImplementedError


def test_that_check_finds_a_field_without_a_check_a_wrong_name_and_a_wrong_kind_of_error():
    found = [line.partition(":")[0] for line in unrefused(_Careless)]
    assert found == [
        "checked=nan",
        "unchecked=-1.0",
        "unchecked=nan",
        "unchecked=inf",
        "misnamed='no such thing'",
        "untyped=-1",
        "untyped=2.5",
        "untyped=nan",
    ]
