"""Crops: where they lie, what they show, which of their pixels are sensitive."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.receipts import HEIGHT, WIDTH, crops_of, read_receipts


def receipt_of(printer, **changes):
    (receipt,) = read_receipts(printer.print([printer.entry(5) | changes]))
    return receipt


def test_each_field_is_in_the_middle_of_its_crop_as_far_as_the_border_allows(printer):
    """Phone (20..120, 20..32): the left and the upper edge come first; total (120..160, 240..252): the right edge."""
    receipt = receipt_of(printer)
    phone, date, total = crops_of(receipt)
    assert [crop.field for crop in (phone, date, total)] == ["phone", "date", "total"]
    assert (phone.left, phone.top) == (6, 0)
    assert (date.left, date.top) == (6, 84)
    assert (total.left, total.top) == (200 - WIDTH, 214)
    for crop in (phone, date, total):
        window = receipt.pixels[crop.top : crop.top + HEIGHT, crop.left : crop.left + WIDTH]
        np.testing.assert_array_equal(crop.pixels, window)


def test_the_mask_holds_every_sensitive_box_that_the_crop_shows_and_nothing_else(printer):
    """The date's crop ends above the total; a second mention of the date reaches out of it."""
    boxes = [*printer.entry(5)["boxes"], [100, 140, 180, 152, "06/03/2018"]]
    date = crops_of(receipt_of(printer, boxes=boxes))[1]
    wanted = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    wanted[110 - 84 : 122 - 84, 20 - 6 : 120 - 6] = True
    wanted[140 - 84 :, 100 - 6 :] = True
    assert torch.equal(date.mask, wanted)


def test_a_crop_that_would_meet_an_earlier_one_is_left_out(printer):
    """A date 40 pixels below the phone number shares pixels with its crop; 64 below that crop it shares none."""
    boxes = printer.entry(5)["boxes"]
    close = [box if box[4][:4] != "DATE" else [20, 60, 120, 72, box[4]] for box in boxes]
    assert [crop.field for crop in crops_of(receipt_of(printer, boxes=close))] == ["phone", "total"]
    below = [box if box[4][:4] != "DATE" else [20, 90, 120, 102, box[4]] for box in boxes]
    assert [crop.top for crop in crops_of(receipt_of(printer, boxes=below))] == [0, 64, 214]


def test_of_several_lines_with_the_total_the_one_next_to_the_word_is_shown(printer):
    boxes = [*printer.entry(5)["boxes"], [120, 190, 160, 202, "15.55"]]
    moved = [[120, 190, 160, 202, "15.55"], *printer.entry(5)["boxes"]]
    for lines in (boxes, moved):
        total = crops_of(receipt_of(printer, boxes=lines))[2]
        assert total.top == 214
        assert total.mask.any()


def test_a_receipt_smaller_than_a_crop_is_named(printer):
    receipt = receipt_of(printer, w=WIDTH - 1, boxes=[[0, 0, 90, 12, "TEL: 03-5550005"]])
    with pytest.raises(ValueError, match="receipt 005 must have at least 128 x 64 pixels, got 127 x 300"):
        crops_of(receipt)
