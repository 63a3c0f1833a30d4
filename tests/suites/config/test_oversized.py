"""Suites that are nested very deeply or hold very large numbers: they are refused in one paragraph."""

import resource
import sys

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.suite import Suite

DEPTHS = [65, 900, 20_000]


def in_tables(depth):
    return "{ a = " * depth + "1" + " }" * depth


def in_lists(depth):
    return "[" * depth + "]" * depth


def in_keys(depth, last="a"):
    return ".".join(["a"] * (depth - 1) + [last])


def in_quoted_keys(depth):
    return " . ".join(['"a\\"b"', "'c'"] * (depth // 2) + ["d"])


@pytest.fixture
def refusal(suite_file):
    def read(*changes, overrides=()):
        with pytest.raises(ConfigError) as refused:
            load_suite(str(suite_file(*changes)), overrides=overrides)
        assert len(refused.value.args) == 1
        assert len(str(refused.value)) < 1000
        return str(refused.value)

    return read


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "written",
    [
        lambda depth: f"[defenses.none]\nplan = {in_tables(depth)}",
        lambda depth: f"[defenses.none]\nown = {in_lists(depth)}",
        lambda depth: f"[defenses.none]\n{in_keys(depth)} = 1",
        lambda depth: f"[defenses.none]\n{in_quoted_keys(depth)} = 1",
        lambda depth: f"[{in_keys(depth)}]\n[defenses.none]",
    ],
)
def test_a_file_that_is_nested_too_deeply_is_refused_without_filling_the_memory(refusal, written, depth):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "nested" in refusal("[defenses.none]", written(depth))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000 * (1 if sys.platform == "linux" else 1024)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "written",
    [
        lambda depth: f"defenses.none.own={in_tables(depth)}",
        lambda depth: f"defenses.none.own={in_lists(depth)}",
        lambda depth: f"defenses.none.own={{ {in_keys(depth)} = 1 }}",
        lambda depth: f"defenses.none.{in_keys(depth)}=1",
    ],
)
def test_an_override_that_is_nested_too_deeply_is_refused(refusal, written, depth):
    said = refusal(overrides=(written(depth),))
    assert said.startswith("--set defenses.none.")
    assert "nested" in said


def nested(depth, wrap):
    found = 1
    for _ in range(depth):
        found = wrap(found)
    return found


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("wrap", [lambda one: {"a": one}, lambda one: [one], lambda one: (one,)])
def test_a_dictionary_that_is_nested_too_deeply_is_refused(suite_file, depth, wrap):
    tree = load_suite(str(suite_file()))[1].parse()
    tree["defenses"]["none"]["own"] = nested(depth, wrap)
    with pytest.raises(ConfigError, match="nested"):
        load_suite(tree)


def test_a_checked_suite_that_is_nested_too_deeply_is_refused(suite_file):
    tree = load_suite(str(suite_file()))[1].parse()
    tree["defenses"]["none"]["own"] = nested(300, lambda one: {"a": one})
    with pytest.raises(ConfigError, match="nested"):
        load_suite(Suite.model_validate(tree))


@pytest.mark.parametrize(
    "number",
    ["9" * 5000, "9" * 4000, str(2**63), f"-{2**64}", "0x" + "f" * 5000],
    ids=lambda number: f"{number[:4]}, {len(number)} letters",
)
def test_a_whole_number_that_no_computer_word_holds_is_refused(refusal, number):
    for said in (
        refusal("[defenses.none]", f"[defenses.none]\nown = {number}"),
        refusal("seeds = 1", f"seeds = {number}"),
        refusal(overrides=(f"defenses.none.own={number}",)),
    ):
        assert "64 bits" in said


def test_a_suite_of_very_many_values_or_letters_is_refused(refusal):
    assert "100000 values" in refusal("[defenses.none]", f"[defenses.none]\nown = {[1] * 100_001}")
    assert "1000000 letters" in refusal('name = "tiny"', f'name = "tiny" # {"x" * 1_000_000}')


def test_a_text_of_many_dots_is_no_deep_key(suite_file):
    text = "A sentence. " * 500 + "1.2.3.4.5.6.7.8.9.10 " * 50
    assert load_suite(str(suite_file("Two clients, two rounds.", text)))[0].description == text


def tables(kind, count, text):
    return "".join(f"[{kind}.many{number}]\n{text}\n" for number in range(count))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds = 1", "seeds = 1001", "seeds must be <= 1000, got 1001"),
        (
            "[audit]",
            tables("attacks", 500, "part = 'loss'") + "[audit]",
            "attacks must have at most 500 entries, got 502",
        ),
        (
            "[attacks.loss]",
            tables("attacks", 60, "part = 'loss'") + "[attacks.loss]",
            "the suite plans 126000 cells (trainings and attacks, on each federation, for each defense and seed), and "
            "at most 50000 are planned: choose fewer seeds, or fewer tables with only or a preset",
        ),
    ],
)
def test_a_suite_of_too_many_seeds_tables_or_cells_is_refused_before_anything_is_built(suite_file, old, new, says):
    many = ("seeds=1000",) if "many59" in new else ()
    path = str(suite_file(old, new))
    with pytest.raises(ConfigError) as refused:
        load_suite(path, overrides=many)
    assert says in str(refused.value)
    assert len(refused.value.args) == 1
