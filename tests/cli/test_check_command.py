"""`fedassay check` prints a line per check; its exit code says whether a fault was found."""

import json

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
