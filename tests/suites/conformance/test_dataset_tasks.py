"""Conformance checks of data sets whose labels are numbers, or several per sample."""

import pytest
from fedassay.suites.conformance.check import run_checks
from fedassay.suites.conformance.conformance import checks_and_subject

SOURCE = """
import torch
from fedassay.fl.data.dataset import Dataset

def made(labels, task):
    images = torch.linspace(0, 1, 240).view(60, 1, 1, 4)
    return Dataset(name="own", train_images=images[:40], train_labels=labels[:40].clone(), test_images=images[40:],
                   test_labels=labels[40:].clone(), classes=labels.shape[1], rows=True, task=task)

def numbers():
    return made(torch.linspace(-1, 1, 120).view(60, 2), "regression")

def flags():
    return made(torch.arange(120).view(60, 2) % 3 == 0, "multilabel")

def constant():
    return made(torch.ones(60, 2), "regression")
"""


@pytest.mark.parametrize(
    ("name", "faults"), [("numbers", []), ("flags", []), ("constant", ["labels [0, 1] of 2 are equal in all training"])]
)
def test_labels_of_every_task_are_checked(own_module, name, faults):
    checks, subject = checks_and_subject(f"{own_module(SOURCE)}:{name}", kind="dataset")
    outcomes = list(run_checks(checks, subject))
    found = [outcome.line for outcome in outcomes if not outcome.passed]
    assert len(outcomes) == 5
    assert len(found) == len(faults)
    assert all(words in line for words, line in zip(faults, found, strict=True))
