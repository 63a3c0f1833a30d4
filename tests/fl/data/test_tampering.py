"""Tampering: what is pasted, whence, and that nothing else changes."""

import numpy as np
import pytest
from fedassay.fl.data.receipts import HEIGHT, WIDTH, crops_of, read_receipts
from fedassay.fl.data.sroie import Tampered, tamper
from fedassay.fl.streams import Streams


def rng(number=0):
    return Streams(0).generator("tampering", replicate=number)


def rectangle(changed):
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    return rows[0], rows[-1] + 1, columns[0], columns[-1] + 1


def shows(pixels, piece):
    """Whether the piece stands somewhere in the pixels."""
    windows = np.lib.stride_tricks.sliding_window_view(pixels, piece.shape)
    return bool((windows == piece).all((2, 3)).any())


@pytest.fixture
def receipts(printer):
    return read_receipts(printer.print([printer.entry(number) for number in range(3)]))


@pytest.mark.parametrize("number", range(12))
def test_one_rectangle_inside_a_line_of_the_crop_changes_and_nothing_else(receipts, number):
    crop = crops_of(receipts[0])[number % 3]
    before = crop.pixels.copy()
    done = tamper(crop, receipts[1:], rng(number))
    top, bottom, left, right = rectangle(done.changed)
    assert done.changed[top:bottom, left:right].all()
    assert done.changed.sum() == (bottom - top) * (right - left)
    np.testing.assert_array_equal(done.pixels[~done.changed], before[~done.changed])
    assert (done.pixels[done.changed] != before[done.changed]).any()
    np.testing.assert_array_equal(crop.pixels, before)
    boxes = [crop.within(line) for line in crop.receipt.lines]
    assert any(box[0] <= left and right <= box[2] and box[1] <= top and bottom <= box[3] for box in boxes)


@pytest.mark.simulations
def test_the_piece_is_of_a_number_on_the_same_receipt_or_another_and_both_occur(receipts):
    """Twenty streams: half of the pieces are of the receipt itself, a quarter of each other; few fit more than one."""
    crop, origins = crops_of(receipts[0])[1], set()
    for number in range(20):
        done = tamper(crop, receipts[1:], rng(number))
        top, bottom, left, right = rectangle(done.changed)
        piece = done.pixels[top:bottom, left:right]
        origins.add(tuple(shows(receipt.pixels, piece) for receipt in receipts))
    assert {(True, False, False), (False, True, False), (False, False, True)} <= origins
    assert (False, False, False) not in origins


def test_alone_a_receipt_is_tampered_with_by_copy_and_move(receipts):
    done = tamper(crops_of(receipts[0])[2], [], rng())
    top, bottom, left, right = rectangle(done.changed)
    assert shows(receipts[0].pixels, done.pixels[top:bottom, left:right])


def test_equal_generators_tamper_alike_and_others_do_not(receipts):
    crop = crops_of(receipts[0])[0]
    first, again, other = (tamper(crop, receipts[1:], rng(number)) for number in (1, 1, 2))
    np.testing.assert_array_equal(first.pixels, again.pixels)
    np.testing.assert_array_equal(first.changed, again.changed)
    assert (first.changed != other.changed).any()


def test_a_donor_has_the_height_of_the_line_where_there_is_one(printer):
    """Of two other numbers one is as high as the date and one three times: the high one is never taken."""
    entry = printer.entry(0)
    entry["boxes"] = [[20, 110, 120, 122, "01/03/2018"], [20, 200, 120, 212, "5555555555"], [20, 240, 120, 276, "88"]]
    (receipt,) = read_receipts(printer.print([entry]))
    (crop,) = crops_of(receipt)
    for number in range(20):
        done = tamper(crop, [], rng(number))
        top, bottom, left, right = rectangle(done.changed)
        assert bottom - top == 12
        assert shows(receipt.pixels[200:212], done.pixels[top:bottom, left:right])


def test_where_nothing_can_be_forged_the_error_names_the_receipt(printer):
    entry = printer.entry(0) | {"boxes": [[20, 110, 120, 122, "01/03/2018"]]}
    wordless = entry | {"boxes": [[20, 110, 120, 113, "01/03/2018"]]}
    (single,) = read_receipts(printer.print([entry]))
    with pytest.raises(ValueError, match="no number was found to paste"):
        tamper(crops_of(single)[0], [], rng())
    (low,) = read_receipts(printer.print([wordless]))
    with pytest.raises(ValueError, match="the date of receipt 000 must show digits in its crop, got none"):
        tamper(crops_of(low)[0], [single], rng())


def test_an_untouched_crop_is_itself(receipts):
    crop = crops_of(receipts[0])[0]
    kept = Tampered.untouched(crop)
    np.testing.assert_array_equal(kept.pixels, crop.pixels)
    assert kept.changed.shape == (HEIGHT, WIDTH)
    assert not kept.changed.any()
