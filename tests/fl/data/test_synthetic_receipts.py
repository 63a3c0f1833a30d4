"""Drawn receipts: identical everywhere, with the interface of scanned ones and no real data."""

import hashlib
import re

import numpy as np
import pytest
import torch
from fedassay.fl.data.datasets import available, load_dataset
from fedassay.fl.data.receipts import COUNT, crops_of, synthetic_receipts


@pytest.fixture(scope="module")
def receipts():
    return synthetic_receipts()


def test_every_receipt_has_one_line_of_each_field_and_a_crop_around_each(receipts):
    assert len(receipts) == COUNT
    for receipt in receipts:
        assert [crop.field for crop in crops_of(receipt)] == ["phone", "date", "total"]
        assert [len(lines) for lines in receipt.fields.values()][:2] == [1, 1]
        # The amount may be what was paid, too.
        assert any(line.text.startswith("TOTAL") for line in receipt.fields["total"])


def test_a_box_holds_all_the_ink_of_its_line(receipts):
    """Grain is at most 12 grey values, ink at most 84 and paper at least 205: what is below 120 is ink."""
    for receipt in receipts[:20]:
        ink = receipt.pixels < 120
        for line in receipt.lines:
            assert ink[line.top : line.bottom, line.left : line.right].any()
            ink[line.top : line.bottom, line.left : line.right] = False
        assert not ink.any()


def test_the_total_is_the_sum_of_the_prices_and_the_change_what_is_left(receipts):
    for receipt in receipts:
        amounts = [(line.text, round(100 * float(line.text.split()[-1]))) for line in receipt.lines if "." in line.text]
        *goods, (_, total), (_, paid), (_, change) = amounts
        assert sum(price for _, price in goods) == total == paid - change


def test_no_phone_number_is_real(receipts):
    phones = [line.text for receipt in receipts for line in receipt.fields["phone"]]
    assert all(re.fullmatch(r"TEL 00-0\d{6}", phone) for phone in phones)
    assert len(set(phones)) > COUNT - 3


@pytest.mark.simulations
def test_the_pixels_are_those_of_every_machine(receipts):
    """Raw bits and whole numbers only: a change of numpy or Pillow must not show here."""
    digest = hashlib.sha256(b"".join(receipt.pixels.tobytes() for receipt in receipts)).hexdigest()
    assert digest == "8a4f80a8f6b0173e703dfee3847831115c8b1dd882cb5ad22d60a2a3bbfc8e24"
    assert (
        load_dataset("synthetic_receipts").digest == "f2cc5226cd5da0bb661e378c511e29fc8ab9fa335c1fa13f90d5b2bfc698e17d"
    )
    assert (
        load_dataset("synthetic_receipts_tampered").digest
        == "bd2858b45b82a6a329286c7e59e098a4f6765c44cf1a60f8aee98183ae7209b8"
    )


@pytest.mark.simulations
def test_drawn_data_sets_have_the_interface_of_the_scanned_ones():
    fields, forged = load_dataset("synthetic_receipts"), load_dataset("synthetic_receipts_tampered")
    assert fields.shape == forged.shape == (1, 64, 128)
    assert (len(fields.train_labels), len(fields.test_labels)) == (360, 90)
    assert fields.train_labels.bincount().tolist() == [120, 120, 120]
    assert forged.train_labels.sum() == 180
    assert torch.equal(forged.train_targets.flatten(1).any(1), forged.train_labels.bool())
    for part in (fields, forged):
        assert part.train_owners.bincount().max() == 3
        assert part.train_masks.flatten(1).any(1).all()
        assert part.test_masks.flatten(1).any(1).all()
    assert available("synthetic_receipts_tampered") == "drawn here"


def test_a_splice_brings_its_own_paper():
    """What makes tampering visible at all: a pasted piece's brightest pixels differ from the crop's own, mostly."""
    loaded = load_dataset("synthetic_receipts_tampered")
    gaps = []
    for image, target in zip(loaded.train_images[:, 0].numpy(), loaded.train_targets.numpy(), strict=True):
        if target.any():
            gaps.append(abs(np.median(image[target & (image > 0.6)]) - np.median(image[~target & (image > 0.6)])))
    assert 0.3 < np.mean(np.array(gaps) > 0.02) < 0.7  # About half are splices; copy-moves have the same paper.
