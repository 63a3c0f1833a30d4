"""Parts are found by file name, by entry point, or as package.module:Class; every refusal says what there is."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from fedassay.attacks.attack import Attack
from fedassay.attacks.membership.candidates import MembershipAttack
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.transfer.vote_attack import VoteAttack
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.audit import parts as outside
from fedassay.audit.observer import FINAL_MODEL
from fedassay.audit.parts import version_of
from fedassay.defenses.defense import Defense
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.defenses.transfer.defense import TransferDefense
from fedassay.defenses.vertical.defense import VerticalDefense
from fedassay.defenses.without_dp.none import Undefended
from fedassay.suites.config.catalogue import build, find, from_entry_points, part_from_instance
from fedassay.suites.config.part_files import own_parts
from fedassay.suites.config.part_listing import _by_class, all_errata, errata_in, federation_kinds, summary
from fedassay.suites.config.source import ConfigError
from known_parts import parts_by_name

MINE = """\
from dataclasses import dataclass

from fedassay.defenses.defense import Defense


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    clip_norm: float = 1.0

    def __post_init__(self):
        if self.clip_norm <= 0:
            raise ValueError(f"clip_norm must be > 0, got {self.clip_norm}")


class Other:
    pass
"""


@pytest.fixture
def entry_point(monkeypatch):
    """(name, value) -> declares an entry point of the group that the catalogue asks for, and no other."""
    points = []

    def declare(name, value, group="fedassay.defenses"):
        points.append(EntryPoint(name=name, value=value, group=group))

    monkeypatch.setattr(outside, "entry_points", lambda group: [point for point in points if point.group == group])
    return declare


@pytest.mark.processes
def test_finding_one_part_imports_no_other():
    code = (
        "import sys\nfrom fedassay.suites.config.catalogue import find\nfind('defense', 'dp_sgd')\n"
        "print('fedassay.defenses.layers.fedre' in sys.modules, 'fedassay.defenses.shuffling.apes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(("kind", "base"), [("defense", Defense), ("attack", Attack)])
def test_every_part_is_of_its_kind_and_states_what_it_is_in_one_line(kind, base):
    for name, part in parts_by_name(kind).items():
        assert issubclass(part, base)
        assert part is not base
        assert name.startswith("control_") or part.__module__.rpartition(".")[2] == name
        assert summary(part).endswith((".", ")."))


def test_a_part_is_found_by_its_files_name():
    assert find("defense", "none") is Undefended
    assert find("attack", "likelihood_ratio") is LikelihoodRatio


def test_an_unknown_part_lists_the_known_ones_nearest_first():
    with pytest.raises(
        ConfigError, match=r"unknown defense 'dp_sdg'; known: dp_sgd, .*; name your own as package\.mod"
    ):
        find("defense", "dp_sdg")


@pytest.mark.parametrize(("kind", "name"), [("attack", "dp_sgd"), ("defense", "loss")])
def test_a_part_of_the_other_kind_is_unknown(kind, name):
    with pytest.raises(ConfigError, match=f"unknown {kind} '{name}'"):
        find(kind, name)


def test_a_class_of_ones_own_is_found_by_its_path_and_built_with_its_fields(own_module):
    module = own_module(MINE)
    part = build("defense", f"{module}:Mine", {"clip_norm": 2.5})
    assert (part.path, part.instance.clip_norm) == (f"{module}:Mine", 2.5)
    assert type(part.instance).__module__ == module


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import a_package_that_nobody_has", "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_module_that_does_not_import_is_reported_with_its_own_error(own_module, source, says):
    module = own_module(source)
    with pytest.raises(ConfigError, match=rf"defense '{module}:Mine': cannot import {module}: {says}"):
        find("defense", f"{module}:Mine")


@pytest.mark.parametrize("name", ["no_such_module_at_all:Mine", ":Mine", "fedassay.no_such:Mine"])
def test_a_module_that_is_not_there_is_reported(name):
    with pytest.raises(ConfigError, match="cannot import"):
        find("defense", name)


def test_a_class_that_is_missing_lists_the_modules_own_nearest_first(own_module):
    module = own_module(MINE)
    with pytest.raises(ConfigError, match=f"{module} has no 'Mime'; it has: Mine"):
        find("defense", f"{module}:Mime")


@pytest.mark.parametrize("name", ["Other", "dataclass"])
def test_what_is_no_defense_is_refused(own_module, name):
    module = own_module(MINE)
    with pytest.raises(
        ConfigError,
        match=f"'{module}:{name}' must be a subclass of fedassay's Defense, VerticalDefense or",
    ):
        find("defense", f"{module}:{name}")


def test_an_unknown_field_lists_the_parts_fields_nearest_first():
    with pytest.raises(ConfigError, match="dp_sgd has no field 'epslion'; it has: epsilon, clip_norm or delta"):
        build("defense", "dp_sgd", {"epslion": 1.0})


@pytest.mark.parametrize("field", ["part", "plan", "federation", "replicas", "sweep"])
def test_a_field_that_a_suites_table_keeps_for_itself_is_refused(own_module, field):
    module = own_module(MINE.replace("clip_norm", field))
    says = f"rename its field '{field}', because a suite file reserves the keys part, plan, federation, replicas"
    with pytest.raises(ConfigError, match=f"^{module}:Mine: {says}"):
        build("defense", f"{module}:Mine", {})
    with pytest.raises(ConfigError, match=f"^{module}:Mine: {says}"):
        part_from_instance(importlib.import_module(module).Mine(), "defense")


@pytest.mark.parametrize(
    ("field", "shadowed"),
    [("prepare", "Defense.prepare"), ("control", "DefensePart.control"), ("scaled", "Mine.scaled")],
)
def test_a_field_that_would_replace_a_method_of_a_base_class_is_refused(own_module, field, shadowed):
    mine = f"{MINE}\n    def scaled(self):\n        return 2 * self.clip_norm\n".replace("class Other:\n    pass\n", "")
    derived = f"\n\n@dataclass(frozen=True, kw_only=True)\nclass Derived(Mine):\n    {field}: float = 1.0\n"
    module = own_module(mine + derived)
    assert build("defense", f"{module}:Mine", {}).instance.scaled() == 2.0
    with pytest.raises(ConfigError, match=f"{module}:Derived: rename its field '{field}', which shadows {shadowed}"):
        build("defense", f"{module}:Derived", {field: 2.0})


@pytest.mark.parametrize("stated", ["clip_norm: int = 2", "clip_norm = 2"])
def test_a_subclass_that_is_no_dataclass_may_not_state_a_field_that_it_does_not_change(own_module, stated):
    module = own_module(f"{MINE}\n\nclass Forgot(Mine):\n    {stated}\n\nclass Same(Mine):\n    pass\n")
    assert build("defense", f"{module}:Same", {"clip_norm": 2.0}).instance.clip_norm == 2.0
    with pytest.raises(
        ConfigError, match=r"'clip_norm' has no effect as class Forgot states it: .*@dataclass.* clip_norm: int = 2$"
    ):
        build("defense", f"{module}:Forgot", {})


def test_no_part_of_the_package_has_a_field_that_a_suite_keeps():
    for kind in ("defense", "attack"):
        for name in parts_by_name(kind):
            assert build(kind, name, {}).path == name


def test_a_built_part_of_the_package_is_named_as_a_suite_names_it():
    part = part_from_instance(DPSGD(epsilon=2.0), "defense")
    assert (part.path, part.version, part.instance.epsilon) == ("dp_sgd", DPSGD.version, 2.0)


def test_the_version_of_ones_own_part_changes_with_its_source(own_module):
    first, same, other = (own_module(source) for source in (MINE, MINE, MINE.replace("<= 0", "< 0")))
    versions = [version_of(find("defense", f"{module}:Mine")) for module in (first, same, other)]
    assert versions[0] == versions[1] != versions[2]
    assert all(version.startswith("1+") for version in versions)


def test_an_entry_point_is_found_by_its_name_and_listed(own_module, entry_point):
    module = own_module(MINE)
    entry_point("from_elsewhere", f"{module}:Mine")
    assert find("defense", "from_elsewhere").__module__ == module
    assert from_entry_points("defense")["from_elsewhere"].__name__ == "Mine"
    assert "from_elsewhere" not in from_entry_points("attack")


def test_no_entry_point_takes_the_name_of_a_part_of_the_package(own_module, entry_point):
    entry_point("none", f"{own_module(MINE)}:Mine")
    assert find("defense", "none") is Undefended


def test_one_broken_entry_point_does_not_stop_the_others(own_module, entry_point):
    module = own_module(MINE)
    entry_point("broken", f"{own_module('raise RuntimeError')}:Mine")
    entry_point("sound", f"{module}:Mine")
    assert find("defense", "sound").__module__ == module
    assert find("defense", "none") is Undefended
    with pytest.raises(ConfigError, match=r"'broken'.*cannot import"):
        find("defense", "broken")
    with pytest.raises(ConfigError, match="known: broken"):
        find("defense", "brokn")


CLASSES = ("False: ", "False as restated in ", "Loose but valid: ", "Slip: ", "Not stated: ")


def test_items_of_several_lines_are_joined_and_the_section_ends_at_the_next_heading():
    doc = "A.\n\nErrata:\n    - False: one\n      claim. Here: none.\n    - Slip: two. Here: right.\nRaises:\n    - no"
    assert errata_in(doc) == ("False: one claim. Here: none.", "Slip: two. Here: right.")
    assert errata_in("A part.\n\nArgs:\n    - no erratum") == ()


@pytest.mark.parametrize(("part", "items"), list(all_errata("defense").items()), ids=lambda value: str(value)[:20])
def test_each_erratum_starts_with_its_class_and_ends_with_what_the_code_does(part, items):
    for item in items:
        assert item.startswith(CLASSES), f"{part}: {item[:60]}"
        assert item.count(" Here: ") == 1, f"{part}: {item[:60]}"
        assert item.endswith(".")


@pytest.mark.parametrize("kind", ["defense", "attack"])
def test_each_part_is_listed_with_the_kinds_of_federations_that_its_class_runs_on(kind):
    listed, parts = federation_kinds(kind), own_parts(kind)
    assert listed.keys() == parts.keys()
    found = {name: part.load() for name, part in parts.items()}
    assert {name for name, one in found.items() if issubclass(one, VerticalDefense | VerticalAttack)} == {
        name for name, words in listed.items() if words == "vertical"
    }
    assert {name for name, one in found.items() if issubclass(one, TransferDefense | VoteAttack)} == {
        name for name, words in listed.items() if words == "transfer"
    }
    on_students = {
        name for name, one in found.items() if issubclass(one, MembershipAttack) and one.observer == FINAL_MODEL
    }
    assert on_students == {name for name, words in listed.items() if words == "horizontal, transfer"}
    assert {"horizontal", "vertical", "transfer"} <= set(listed.values())
    # A part of another package, of which only the class is known, has the same kinds.
    assert {name: _by_class(one) for name, one in found.items()} == listed


def test_the_command_prints_the_kinds(say):
    listed = json.loads(say("list", "attacks", "--json").stdout)
    assert listed["gradient_sign"].startswith("vertical: ")
    assert listed["vote_likelihood"].startswith("transfer: ")
    assert listed["lira_offline"].startswith("horizontal, transfer: ")
