"""``fedassay list datasets PATH`` describes one data set, such as a file of one's own."""

import json

import pytest


@pytest.fixture
def records(tmp_path):
    """A table of 40 records."""
    lines = ["age,label,owner", *(f"{20 + i},{i % 2},{i // 4}" for i in range(40))]
    (tmp_path / "own.csv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "own.csv"


def test_a_file_is_described_with_what_was_done_to_it(say, records):
    facts = json.loads(say("list", "datasets", "own.csv", "--json").stdout)
    assert (facts["kind"], facts["features"], facts["samples"]) == ("rows of a table", "1", "32 training, 8 test")
    assert facts["owners"] == "8, with 4 to 4 training samples each"
    notes = " ".join(text for key, text in facts.items() if key.startswith("note"))
    assert "split_seed 0" in notes
    assert "standardised" in notes
    models = facts["models"].split(", ")
    assert {"logistic", "mlp"} <= set(models)
    assert "lenet" not in models  # Needs images.
    assert "No value is missing" in notes


def test_options_are_those_of_the_suite_file(say, records):
    words = ("--set", "ranges={ age = [0, 100] }", "--set", "test_share=0.5", "--json")
    facts = json.loads(say("list", "datasets", records, *words).stdout)
    assert facts["range"] == "0.2 to 0.55"
    assert facts["samples"] == "20 training, 20 test"


def test_a_bundled_data_set_is_described(say):
    facts = json.loads(say("list", "datasets", "digits", "--json").stdout)
    assert facts["size"].startswith("8x8 pixels")
    assert "lenet" in facts["models"]
    assert "cnn26k" not in facts["models"]  # Needs 14x14 pixels.
    assert "unet" not in facts["models"]  # Needs targets.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["datasets", "own.cvs"], "data set 'own.cvs' is not there: . holds own.csv"),
        (["datasets", "own.csv", "--set", "labels=a"], "own.csv: option labels"),
        (["datasets", "digits", "--set", "label=a"], "data set digits has no option 'label'"),
        (["defenses", "own.csv"], "can be given only as `list datasets NAME`"),
        (["datasets", "digit"], "unknown data set 'digit'; known: digits"),
    ],
)
def test_what_does_not_fit_is_a_mistake_in_one_paragraph(say, records, words, says):
    result = say("list", *words)
    assert result.exit_code == 2
    assert says in result.stderr.replace("\n", " ")
