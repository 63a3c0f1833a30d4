"""Every key of the tables for vertical federations and transfers is described, and refuses what it cannot use."""

import tomllib

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.other_federations import (
    TrainingSpec,
    TransferAuditSpec,
    TransferSpec,
    VerticalAuditSpec,
    VerticalSpec,
)
from fedassay.suites.config.tables.suite import Suite

VERTICAL = """\
name = "own"

[vertical.main]
epochs = 1
batch = 2
learning_rate = 0.1

[vertical.main.audit]

[defenses.unprotected]
"""
TRANSFER = """\
name = "own"

[transfer.main]
teachers = 2
queries = 5
teacher = { steps = 1, learning_rate = 0.1 }
student = { steps = 1, learning_rate = 0.1 }

[transfer.main.audit]

[defenses.plain_votes]
"""
TABLES = [
    (VERTICAL, ("vertical", "main"), VerticalSpec),
    (VERTICAL, ("vertical", "main", "audit"), VerticalAuditSpec),
    (TRANSFER, ("transfer", "main"), TransferSpec),
    (TRANSFER, ("transfer", "main", "audit"), TransferAuditSpec),
    (TRANSFER, ("transfer", "main", "teacher"), TrainingSpec),
    (TRANSFER, ("transfer", "main", "student"), TrainingSpec),
]
WRONG = [True, 1.5, float("nan"), float("inf"), -1, 2**70, "no_such", "", {"no": 1}, [True], [-1], [1.5], 0]
# Whatever fits one of these is no mistake.
RIGHT = {
    ("active", True), ("summed", True), ("frozen", True), ("known", 0), ("learning_rate", 1.5),
}  # fmt: skip


def error_of(tree):
    try:
        load_suite(tree)
    except ConfigError as error:
        return str(error)
    return ""


def test_every_key_of_a_suite_is_described():
    schema = Suite.model_json_schema()
    tables = {**schema["$defs"], "Suite": schema}
    without = [f"{name}.{key}" for name, table in tables.items() for key, one in table.get("properties", {}).items()
               if not one.get("description")]  # fmt: skip
    assert without == []


@pytest.mark.parametrize(("text", "place", "table"), TABLES, ids=lambda one: str(one)[:40])
def test_every_key_refuses_what_it_cannot_use_and_names_itself_and_the_value(text, place, table):
    for key in table.model_fields:
        for value in WRONG:
            tree = tomllib.loads(text)
            found = tree
            for part in place:
                found = found[part]
            found[key] = value
            said = error_of(tree)
            if (key, value) in [one for one in RIGHT if one[1] is value]:
                assert said == ""
                continue
            assert ".".join((*place, key)) in said, (key, value, said)
            # Of a number that is no number, or too long, its kind stands there; of a table that it is one.
            shown = {"nan": "NaN", "inf": "infinity", str(2**70): "71 bits"}.get(str(value), str(value))
            words = (
                ("a table", "{'no': 1}", "unknown key", "is missing")
                if isinstance(value, dict)
                else (shown.strip("[]"),)
            )
            assert any(word in said for word in words), (key, value, said)


@pytest.mark.parametrize(("text", "place", "table"), TABLES, ids=lambda one: str(one)[:40])
def test_a_wrong_key_is_answered_with_the_known_ones(text, place, table):
    tree = tomllib.loads(text)
    found = tree
    for part in place:
        found = found[part]
    key = min(table.model_fields)
    found[f"{key}x"] = 1
    said = error_of(tree)
    assert f"unknown key '{'.'.join(place)}.{key}x'; known here: {key}" in said


@pytest.mark.parametrize(("text", "line"), [("hidden = [0]", 7), ('active = "yes"', 7), ("summed = 0", 7)])
def test_the_line_of_a_wrong_value_is_named(suite_file, text, line):
    path = suite_file("learning_rate = 0.1", f"learning_rate = 0.1\n{text}", text=VERTICAL)
    with pytest.raises(ConfigError, match=rf"line {line}: vertical\.main\.{text.split()[0]}"):
        load_suite(str(path))
