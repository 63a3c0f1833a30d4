"""Where a key stands, so that an error can point at it; what ``--set`` may do."""

import tomllib

import pytest
from fedassay.suites.config.source import ConfigError, Source, apply_override
from hypothesis import given
from hypothesis import strategies as st

TEXT = """\
name = "x"
# seeds = 9

[federations.main]
rounds = 2
algorithm = { name = "fedsgd" }

[defenses."quoted"]
plan.cohort = "full"
  [audit]  # indented
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("federations", "main", "rounds"), 5),
        (("federations", "main", "algorithm", "name"), 6),
        (("federations", "main", "absent"), 4),
        (("defenses", "quoted", "plan", "cohort"), 9),
        (("audit", "replicas"), 10),
    ],
)
def test_a_path_is_found_on_the_line_of_its_deepest_part(path, line):
    assert Source("f.toml", TEXT).where(path) == f"f.toml, line {line}"


@pytest.mark.parametrize("path", [("seeds",), ("federations",), ()])
def test_what_stands_nowhere_has_the_file_alone(path):
    assert Source("f.toml", TEXT).where(path) == "f.toml"


def test_a_line_is_counted_by_newlines_alone():
    text = 'name = "a\u2028b\x85c"\nseeds = 1\n'
    assert tomllib.loads(text)["seeds"] == 1
    assert Source("f.toml", text).where(("seeds",)) == "f.toml, line 2"


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("audit.replicas", ("audit", "replicas")),
        ("audit", ("audit", "replicas")),
        ("federations.main.rounds", ("federations", "main", "rounds")),
        ("a.b", ("a",)),
    ],
)
def test_a_fault_that_an_override_brought_is_not_blamed_on_the_file(override, path):
    assert Source("f.toml", TEXT, (override,)).where(path) == f"--set {override}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = = 2\n", "line 2"),
        ("a = 1\n[b\nc = 1\n", "line 2"),
        ("a = 1\n\n[b", "line 3"),
        ('a = 1\nb = """\n\n', "line 2"),
    ],
)
def test_what_is_no_toml_is_refused_with_file_and_line(text, line):
    with pytest.raises(ConfigError, match=r"^f\.toml: not a TOML file: ") as refused:
        Source("f.toml", text).parse()
    assert line in str(refused.value)


def test_an_override_reads_toml_and_else_plain_text():
    tree = {}
    for assignment in ("a.b=3", "a.c = 0.5", "a.d=[1, 2]", "e={ poisson = 0.1 }", "f=full", "g=a=b", "h="):
        apply_override(tree, assignment)
    assert tree == {
        "a": {"b": 3, "c": 0.5, "d": [1, 2]},
        "e": {"poisson": 0.1},
        "f": "full",
        "g": "a=b",
        "h": "",
    }


@pytest.mark.parametrize("assignment", ["", "a", "=3", "a.=3", ".a=3", "a..b=3", " = "])
def test_an_override_without_a_key_is_refused(assignment):
    with pytest.raises(ConfigError, match=r"--set must have the form key\.sub=value"):
        apply_override({}, assignment)


@pytest.mark.parametrize("assignment", ["name.x=1", "list.x=1", "name.x.y=1"])
def test_an_override_through_what_is_no_table_is_refused(assignment):
    with pytest.raises(ConfigError, match="is not a table"):
        apply_override({"name": "x", "list": [1]}, assignment)


@given(st.text(), st.text())
def test_no_override_brings_anything_but_a_value_or_a_config_error(key, value):
    tree = {"name": "x", "a": {"b": 1}}
    try:
        placed = apply_override(tree, f"{key}={value}")
    except ConfigError:
        assert tree["name"] == "x"
        return
    for part in placed.split("."):
        tree = tree[part]
