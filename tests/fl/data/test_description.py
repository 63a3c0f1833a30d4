"""The facts about a data set that the command line prints."""

from dataclasses import replace

import torch
from fedassay.fl.data.dataset import description
from fedassay.fl.data.datasets import load_dataset


def test_the_facts_of_images():
    digits = load_dataset("digits")
    facts = description(digits)
    assert (facts["size"], facts["colour"], facts["owners"]) == ("8x8 pixels (height x width)", "grey", "not known")
    assert facts["samples"] == "1347 training, 450 test"
    assert facts["classes"].startswith("10 (0: 141, 1: 137")
    assert facts["tasks"] == "image classification"
    assert facts["SHA-256"] == digits.digest


def test_owners_balance_and_classes_without_samples():
    digits = load_dataset("digits")
    owned = replace(digits, strokes=False, classes=12, train_owners=torch.arange(1347) // 100)
    facts = description(owned)
    assert facts["owners"] == "14, with 47 to 100 training samples each"
    assert facts["balance"] == "smallest class 0.0%, largest class 10.7%; 2 classes have no training sample"


def test_rows_and_targets_have_their_tasks():
    digits = load_dataset("digits")
    rows = replace(
        digits,
        train_images=digits.train_images.reshape(-1, 1, 1, 64) * 9,
        test_images=digits.test_images.reshape(-1, 1, 1, 64),
        rows=True,
        strokes=False,
        train_masks=None,
        test_masks=None,
    )
    assert description(rows)["kind"] == "rows of a table"
    assert (description(rows)["features"], description(rows)["tasks"]) == ("64", "table classification")
    marked = replace(
        digits, strokes=False, classes=10, train_targets=digits.train_masks, test_targets=digits.test_masks
    )
    assert description(marked)["tasks"] == "image classification, segmentation"
