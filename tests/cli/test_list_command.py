"""``fedassay list datasets PATH`` describes one data set, such as a file of one's own.

What a shell offers after the first letters of a command, a suite or a defense.

`fedassay check` prints a line per check; its exit code says whether a fault was found.
"""

import json

import pytest
from fedassay.cli.app import app
from typer.testing import CliRunner


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


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedassay re", {"report", "resume"}),
        ("fedassay run qu", {"quick"}),
        ("fedassay run mi", {"mine.toml"}),
        ("fedassay run quick -d dp_f", {"dp_fedavg", "dp_fedsgd"}),
    ],
)
def test_a_shell_offers_names(line, offered, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.txt").touch()
    monkeypatch.chdir(tmp_path)
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_FEDASSAY_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], env=words, prog_name="fedassay")
    assert set(result.output.split()) >= offered
    assert "mine.txt" not in result.output


PARTS = """
import torch
from torch import nn
from fedassay.fl.data.dataset import Dataset

def rows(count: int = 12):
    images, labels = torch.zeros(count, 1, 2, 2), torch.arange(count) % 2
    test = {"test_images": images, "test_labels": labels}
    return Dataset(name="rows", train_images=images, train_labels=labels, classes=2, **test)
"""


def test_a_sound_part_ends_with_code_0_and_a_broken_one_with_10(say, own_module):
    module = own_module(PARTS)
    sound = say("check", "iid")
    assert sound.exit_code == 0
    assert "iid (partition): 5 checks, no faults" in sound.output
    broken = say("check", f"{module}:rows", "--set", "count=1")
    assert broken.exit_code == 10
    assert "FAULT  Every class has a training sample" in broken.output


def test_a_check_that_reaches_its_limit_is_no_fault(say, own_module):
    module = own_module("import time\n\n\ndef part():\n    time.sleep(9)\n")
    late = say("check", f"{module}:part", "--kind", "dataset", "--limit", "0.1")
    assert (late.exit_code, "FAULT" in late.output, "--limit" in late.output) == (11, False, True)


def test_json_holds_every_check(say):
    found = json.loads(say("check", "poisson", "--json").stdout)
    assert (found["part"], found["kind"]) == ("poisson", "sampling")
    assert all(check["passed"] for check in found["checks"])


def test_what_cannot_be_checked_ends_with_code_2(say, own_module):
    module = own_module(PARTS)
    for words, reason in (
        (["no_such_part"], "unknown part 'no_such_part'"),
        ([f"{module}:nothing"], "has no 'nothing'; it has: rows"),
        (["iid", "--kind", "partitions"], "unknown kind of part 'partitions'; known: partition"),
        (["iid", "--limit", "0"], "--limit must be > 0"),
        (["iid", "--set", "alpha"], "must have the form key"),
    ):
        result = say("check", *words)
        assert result.exit_code == 2
        assert reason in " ".join(result.stderr.split())
