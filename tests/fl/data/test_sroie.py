"""Tampering: what is pasted, whence, and that nothing else changes.

The data sets of receipts, from receipts drawn for the test; the real ones where they are.
"""

import os

import numpy as np
import pytest
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.receipts import ANNOTATIONS, HEIGHT, WIDTH, crops_of, read_receipts
from fedassay.fl.data.sroie import Tampered, sroie, sroie_tampered, tamper
from fedassay.fl.partitions import ByOwner
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task


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


RECEIPTS = 10
needs_receipts = pytest.mark.skipif(
    not DataFolder.from_environment().has(ANNOTATIONS),
    reason=f"{ANNOTATIONS} is not in FEDASSAY_DATA ({os.environ.get('FEDASSAY_DATA')})",
)


@pytest.fixture
def folder(printer):
    return printer.print([printer.entry(number) for number in range(RECEIPTS)])


def test_crops_are_labelled_by_their_field_and_no_receipt_is_in_both_parts(folder):
    """Eight receipts of ten train, three crops each; a crop's number of a receipt is its owner."""
    loaded = sroie(folder)
    assert loaded.shape == (1, 64, 128)
    assert loaded.train_labels.tolist() == [0, 1, 2] * 8
    assert loaded.test_labels.tolist() == [0, 1, 2] * 2
    assert len(loaded.train_owners.unique()) == 8
    assert loaded.train_owners.bincount().max() == 3
    train = {image.numpy().tobytes() for image in loaded.train_images}
    assert not train & {image.numpy().tobytes() for image in loaded.test_images}
    assert loaded.train_targets is None


def test_every_crop_shows_something_sensitive_and_something_else(folder):
    loaded = sroie(folder)
    for masks in (loaded.train_masks, loaded.test_masks):
        inside = masks.flatten(1).float().mean(1)
        assert ((inside > 0) & (inside < 0.5)).all()


def test_half_of_the_crops_are_tampered_with_exactly_where_the_targets_say(folder):
    genuine, forged = sroie(folder), sroie_tampered(folder)
    for part in ("train", "test"):
        before, after = getattr(genuine, f"{part}_images")[:, 0], getattr(forged, f"{part}_images")[:, 0]
        labels, targets = getattr(forged, f"{part}_labels"), getattr(forged, f"{part}_targets")
        assert labels.sum() == len(labels) // 2
        assert torch.equal(targets.flatten(1).any(1), labels.bool())
        assert not ((before != after) & ~targets).any()
        assert torch.equal((before != after).flatten(1).any(1), labels.bool())
        assert torch.equal(getattr(genuine, f"{part}_masks"), getattr(forged, f"{part}_masks"))


def test_the_same_files_give_the_same_digest_and_one_more_receipt_another(folder, printer):
    digests = [load(folder).digest for load in (sroie, sroie, sroie_tampered, sroie_tampered)]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    more = printer.print([printer.entry(number) for number in range(RECEIPTS + 1)])
    assert sroie(more).digest != digests[0]


def test_a_task_holds_the_masks_and_deals_whole_receipts(folder):
    task = build_task(sroie(folder), model="lenet", partition=ByOwner(), clients=4, streams=Streams(0))
    assert task.masks.shape == (len(task.labels), 64, 128)
    assert sum(task.sizes) == len(task.labels)


def test_too_few_receipts_for_training_and_test_are_named(printer):
    with pytest.raises(
        ValueError, match=r"annotations.jsonl.gz must have enough receipts .*got 4 receipts and no test crop"
    ):
        sroie(printer.print([printer.entry(number) for number in range(4)]))


@pytest.mark.simulations
@needs_receipts
def test_the_real_receipts_give_crops_of_all_fields():
    """No digest is pinned: the scans are compressed with loss, and what a decoder makes of them is its own."""
    loaded = load_dataset("sroie")
    assert loaded.train_labels.bincount().tolist() == [266, 448, 486]
    assert loaded.test_labels.bincount().tolist() == [68, 109, 121]
    assert loaded.train_masks.flatten(1).any(1).all()


@pytest.mark.simulations
@needs_receipts
def test_the_real_receipts_can_be_tampered_with():
    loaded = load_dataset("sroie_tampered")
    assert loaded.train_labels.bincount().tolist() == [600, 600]
    assert torch.equal(loaded.train_targets.flatten(1).any(1), loaded.train_labels.bool())
