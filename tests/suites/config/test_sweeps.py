"""A list of values in a defense's table stands for one defense per value."""

import re

import fedassay
import pytest
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.run import relaunch

ONE, SWEPT = "epsilon = 4.0", "epsilon = [4, 0.5]"
PUBLISHED = '\n[[published]]\nfederation = "main"\nmetric = "accuracy"\nvalue = 0.9\nsource = "Table 1"\n'
OWN = """\
from dataclasses import dataclass
from fedassay.defenses.defense import Defense

@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    norms: "tuple[float, ...] | None" = None
    noisy: "bool" = True
"""


def test_each_value_is_a_defense_of_its_own_and_the_first_list_is_the_line_of_a_sweep(resolved):
    entries = resolved(f"delta = 1e-5\n{ONE}", f"{SWEPT}\ndelta = [1e-5, 1e-6]").defenses[1:]
    assert [(entry.label, entry.spec.sweep, entry.defense) for entry in entries] == [
        (f"ldp_gaussian-epsilon-{word}-delta-{far}", f"ldp_gaussian-delta-{far}", LDPGaussian(epsilon=near, delta=d))
        for word, near in (("4", 4), ("0_5", 0.5))
        for far, d in (("1e-05", 1e-5), ("1e-06", 1e-6))
    ]


def test_a_list_of_a_field_that_takes_lists_is_no_sweep(resolved, own_module):
    part = f'[defenses.mine]\npart = "{own_module(OWN)}:Mine"\nnorms = [1.0, 2.0]\n'
    assert resolved("[defenses.none]", part).defenses[0].defense.fields() == {"norms": [1.0, 2.0], "noisy": True}
    swept = resolved("[defenses.none]", f"{part}noisy = [true, false]").defenses[:2]
    assert {entry.label: entry.defense.noisy for entry in swept} == {"mine-noisy-true": True, "mine-noisy-false": False}


@pytest.mark.parametrize(
    ("swept", "says"),
    [
        ("epsilon = []", "must have 1 to 100 defenses, got 0"),
        ("epsilon = [1, 2, 1.0]", "epsilon must list each value once, got [1, 2, 1.0]"),
        ('epsilon = [1, "a"]', "ldp_gaussian: epsilon must be a number > 0, got 'a'"),
        ("epsilon = [{ a = 1 }]", "epsilon must list numbers, texts, or true and false"),
        (f"epsilon = {list(range(1, 102))}", "must have 1 to 100 defenses, got 101"),
        (
            "epsilon = [1.123456789012345e-100]",
            "must be 1 to 40 letters, digits, _ or -, got 'ldp_gaussian-epsilon-1_12",
        ),
        ("epslion = [1, 2]", "ldp_gaussian has no field 'epslion'"),
    ],
)
def test_a_sweep_that_is_wrong_is_refused_with_its_line(resolved, swept, says):
    # The line of the table, or of its key.
    with pytest.raises(ConfigError, match=rf"\.toml, line 1[68]: .*{re.escape(says)}"):
        resolved(ONE, swept)


def test_a_sweep_of_the_command_line_counts_against_the_limit_of_cells(suite_file):
    changes = ("seeds=1000", f"defenses.ldp_gaussian.epsilon={list(range(1, 51))}")
    with pytest.raises(ConfigError, match="plans 153000 cells"):
        load_suite(str(suite_file()), overrides=changes)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["none", "ldp_gaussian-epsilon-4", "ldp_gaussian-epsilon-0_5"]),
        ({"only": ["defenses.ldp_gaussian"]}, ["ldp_gaussian-epsilon-4", "ldp_gaussian-epsilon-0_5"]),
        ({"only": ["defenses.*-0_5"]}, ["ldp_gaussian-epsilon-0_5"]),
        ({"preset": "four"}, ["none", "ldp_gaussian-epsilon-4"]),
        ({"overrides": ("defenses.ldp_gaussian.epsilon=[1]",)}, ["none", "ldp_gaussian-epsilon-1"]),
    ],
)
def test_a_defense_of_a_sweep_can_be_kept_or_dropped_with_what_was_published_for_it(suite_file, tiny, options, left):
    text = f'{tiny}{PUBLISHED}defense = "ldp_gaussian-epsilon-0_5"\n[presets.four]\ndrop = ["defenses.*-0_5"]\n'
    spec, _ = load_suite(str(suite_file(ONE, SWEPT, text=text)), **options)
    assert list(spec.defenses) == left
    assert len(spec.published) == ("ldp_gaussian-epsilon-0_5" in left)


@pytest.mark.simulations
def test_a_run_of_a_sweep_can_be_resumed(suite_file, tmp_path):
    run = fedassay.run(str(suite_file(ONE, SWEPT)), jobs=1, folder=tmp_path / "run", report=False)
    assert {record.defense for record in run.records} >= {"ldp_gaussian-epsilon-4", "ldp_gaussian-epsilon-0_5"}
    assert relaunch(run.folder).plan.run_id == run.records[0].run_id
