"""Sensitive regions drawn by hand.

The facts about a data set that the command line prints.
"""

from dataclasses import replace

import torch
from fedassay.fl.data.dataset import box_mask, description, stroke_box
from fedassay.fl.data.datasets import load_dataset


def test_the_stroke_box_is_the_smallest_box_around_the_ink():
    """Two strokes of the first image, in two channels; a spot that is too dark; the second image is black."""
    images = torch.zeros(2, 3, 8, 8)
    images[0, 1, 2, 3] = images[0, 0, 5, 4] = 0.5
    images[0, 2, 7, 7] = 0.05
    wanted = torch.zeros(2, 8, 8, dtype=torch.bool)
    wanted[0, 2:6, 3:5] = True
    assert torch.equal(stroke_box(images), wanted)


def test_ink_in_two_corners_makes_the_whole_image_sensitive():
    images = torch.zeros(1, 1, 5, 4)
    images[0, 0, 0, 3] = images[0, 0, 4, 0] = 1
    assert stroke_box(images).all()


def test_boxes_mark_their_pixels_and_are_cut_at_the_border():
    """Edges on the right and at the bottom are outside; a box that lies beyond the image marks nothing."""
    mask = box_mask([(1, 0, 3, 2), (2, 1, 9, 3), (-5, -5, -1, -1), (6, 0, 8, 9)], 4, 5)
    assert mask.int().tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]


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
