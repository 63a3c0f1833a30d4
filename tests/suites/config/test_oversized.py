"""Suites that hold very large numbers, or very many tables or cells: they are refused in one paragraph."""

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite


@pytest.fixture
def refusal(suite_file):
    def read(*changes, overrides=()):
        with pytest.raises(ConfigError) as refused:
            load_suite(str(suite_file(*changes)), overrides=overrides)
        assert len(refused.value.args) == 1
        assert len(str(refused.value)) < 1000
        return str(refused.value)

    return read


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


@pytest.mark.parametrize(
    "deep", ["[" * 3000 + "]" * 3000, "{ a = " * 3000 + "1" + " }" * 3000], ids=["lists", "tables"]
)
def test_a_suite_that_is_nested_too_deeply_is_refused(suite_file, deep):
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_suite(str(suite_file("alpha = 0.05", f"alpha = 0.05\nnested = {deep}")))
