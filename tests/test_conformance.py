"""Conformance: every bundled part passes the checks of its kind, as `fedassay check` runs them, and the rules of this
repository; of defenses alone, see their folder.

The base class gives the checks of `fedassay check` as tests.
"""

import dataclasses
import importlib
import json
import math
import pkgutil
import re
from abc import ABC
from typing import Literal

import pytest
from fedassay.attacks.attack import AttackPart
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.parts import KINDS
from fedassay.defenses.defense import Defense, DefensePart
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.data.datasets import available
from fedassay.fl.fields import CountOrAll, OpenShare, Several, check_fields
from fedassay.suites.config.part_files import own_parts
from fedassay.suites.conformance.audit_parts import estimator_error_rate
from fedassay.suites.conformance.check import run_checks
from fedassay.suites.conformance.conformance import checks_and_subject, known_parts
from fedassay.suites.conformance.defense import claims_hold
from fedassay.testing import PartTests

LONG = (claims_hold, estimator_error_rate)
"""Checks that take seconds of a part."""
FOLDERS = {
    "defense": ["defenses"],
    "attack": [
        f"attacks.{one}" for one in ("gradient", "labels", "membership", "attributes", "text", "vertical", "transfer")
    ],
}
PARTS = [(kind, name) for kind in FOLDERS for name in own_parts(kind)]
EACH = [
    pytest.param(kind, name, id=f"{kind}-{name}")
    for kind in KINDS
    for name in known_parts(kind)
    if kind != "dataset" or available(name) in ("bundled", "drawn here")
]


def faults(kind, name, *, long):
    """What the checks of a part find, of those that take long or of the others."""
    checks, subject = checks_and_subject(name, kind=kind)
    outcomes = run_checks([check for check in checks if (check in LONG) is long], subject)
    return [outcome.line for outcome in outcomes if not outcome.passed]


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_a_bundled_part_passes_the_checks_of_its_kind(kind, name):
    assert faults(kind, name, long=False) == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [one for one in EACH if one.values[0] in ("defense", "estimator")])
def test_a_bundled_part_passes_the_checks_that_take_long(kind, name):
    assert faults(kind, name, long=True) == []


def parts_in(module, base):
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


def in_words(name):
    """ControlNoClip -> control_no_clip."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize(("kind", "base"), [("defense", DefensePart), ("attack", AttackPart)])
def test_the_parts_read_from_text_are_those_that_importing_every_file_finds(kind, base):
    found = {}
    for folder in FOLDERS[kind]:
        package = importlib.import_module(f"fedassay.{folder}")
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            held = parts_in(importlib.import_module(entry.name), base)
            controls = {in_words(one.__name__): one for one in held if one.__name__.startswith("Control")}
            assert len(held) == len(controls) or len(held) == 1, f"{entry.name} defines {held}"
            found |= controls or {entry.name.rpartition(".")[2]: one for one in held}
    assert len(found) > 40
    assert {name: part.load() for name, part in own_parts(kind).items()} == found


TRUTH_OR_TEXT = [True, False, "1"]
"""No numbers, though TOML's true and false are Python's one and zero."""


def bad_values(name, default, *, defense):
    """What a field with this name and default must refuse; of a defense, what no report carries too."""
    if isinstance(default, bool):
        return ["1", 2]
    if isinstance(default, str):
        return ["no such thing", 1.5]
    extreme = [1e-300, 1e300] if defense and name in ("epsilon", "radius", "clip_norm") else []
    if isinstance(default, int):
        return [-1, default + 0.5, math.nan, *TRUTH_OR_TEXT]
    if isinstance(default, float):
        return [-1.0, math.nan, math.inf, [1.0], *TRUTH_OR_TEXT, *extreme]
    return TRUTH_OR_TEXT if default is None else []


def unrefused(part):
    """Every bad value that the part takes, or refuses without the field's name and the value."""
    found = []
    for name, default in part().fields().items():
        for bad in bad_values(name, default, defense=issubclass(part, DefensePart)):
            refusal = "taken"
            try:
                part(**{name: bad})
            except Exception as error:
                refusal = f"{type(error).__name__}: {error}"
            if not re.search(rf"^ValueError: .*\b{name}\b.* must .*{re.escape(repr(bad))}", refusal, re.DOTALL):
                found.append(f"{name}={bad!r}: {refusal}")
    return found


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_defense_or_attack_is_a_frozen_record_whose_fields_are_checked(kind, name):
    part = own_parts(kind)[name].load()
    line = own_parts(kind)[name].summary
    assert re.fullmatch(r"[A-Zi].*[^.]\.", line), f"must be a whole sentence, got {line!r}"
    assert not re.search(r"[.!?] [A-Z]", line), f"must be one sentence, got {line!r}"
    assert re.fullmatch(r"\d+(\.\d+)*", part.version)
    built = part()
    assert part(**json.loads(json.dumps(built.fields()))) == built
    assert set(built.fields()) == {field.name for field in dataclasses.fields(part)}
    for field in built.fields():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(built, field, 1)
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
    found = {line.partition(":")[0] for line in unrefused(_Careless)}
    assert found >= {
        "checked=nan",
        "unchecked=-1.0",
        "unchecked=inf",
        "misnamed='no such thing'",
        "untyped=-1",
        "untyped=2.5",
    }
    assert not found & {"checked=-1", "checked=3.5"}


class TestIID(PartTests):
    part = "iid"


class TestWithOptions(PartTests):
    part, kind, options = "dirichlet", "partition", {"alpha": 0.5}


class _Broken(PartTests):
    part, kind = "fedassay.fl.partitions:ByOwner", "sampling"


def test_a_fault_fails_the_test():
    from fedassay.suites.conformance.conformance import checks_and_subject

    checks, _ = checks_and_subject(_Broken.part, kind=_Broken.kind)
    with pytest.raises(AssertionError, match="must be a subclass of fedassay's Sampling"):
        _Broken().test_conformance(checks[0])


@dataclasses.dataclass(frozen=True)
class _Typed:
    """One field of each kind of type, and two whose types are texts, of which one cannot be evaluated."""

    several: Several = 2
    share: OpenShare = 0.5
    epochs: CountOrAll = "all"
    rule: Literal["sum", "mean"] = "sum"
    once: bool = False
    text: "Several" = 2
    unknown: "NowhereDefined" = 0  # noqa: F821


TYPED_WRONGLY = [{"several": 1}, {"share": 1.0}, {"epochs": 0}, {"rule": "max"}, {"once": 1}, {"text": 1}]


@pytest.mark.parametrize("bad", TYPED_WRONGLY)
def test_fields_are_refused_by_their_types(bad):
    check_fields(_Typed())
    with pytest.raises(ValueError, match=rf"^{min(bad)} must be .*{bad[min(bad)]}"):
        check_fields(_Typed(**bad))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OtherBudget(LDPGaussian):
    epsilon: float = 2.0
    clip_norm: "NowhereDefined" = 0.5  # noqa: F821
    halved: bool = False
    rule: Literal["sum", "mean"] = "sum"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FewerCandidates(LossThreshold):
    count: int = 20


@pytest.mark.parametrize("part", [_OtherBudget, _FewerCandidates])
def test_a_subclass_that_states_another_default_refuses_what_its_base_refuses(part):
    assert unrefused(part) == []


POSTPONED = """from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.fl.fields import Share
if TYPE_CHECKING:
    from fedassay.fl.fields import Positive


@dataclass(frozen=True, kw_only=True)
class Postponed(LossThreshold):
    stated: ClassVar[Positive] = 1.0
    count: Positive = 20
    kept: Share = 0.5
    loudly: bool = False
"""


def test_fields_of_a_module_that_postpones_annotations_are_refused_by_their_types(tmp_path, monkeypatch):
    (tmp_path / "postponing.py").write_text(POSTPONED)
    monkeypatch.syspath_prepend(tmp_path)
    assert unrefused(importlib.import_module("postponing").Postponed) == []
