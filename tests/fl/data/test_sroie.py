"""The data sets of receipts, from receipts drawn for the test; the real ones where they are."""

import os

import pytest
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.receipts import ANNOTATIONS
from fedassay.fl.data.sroie import sroie, sroie_tampered
from fedassay.fl.partitions import ByOwner
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task

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
