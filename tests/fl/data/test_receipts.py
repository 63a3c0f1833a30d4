"""Receipts drawn for the test: which lines are sensitive, and the errors for broken annotations.

Drawn receipts: identical everywhere, with the interface of scanned ones and no real data.

Crops: where they lie, what they show, which of their pixels are sensitive.
"""

import hashlib
import json
import re

import numpy as np
import pytest
import torch
from fedassay.fl.data.dataset import DatasetMissing
from fedassay.fl.data.datasets import available, load_dataset
from fedassay.fl.data.receipts import COUNT, HEIGHT, WIDTH, crops_of, read_receipts, synthetic_receipts
from PIL import Image


def texts(receipt, field):
    return [line.text for line in receipt.fields[field]]


def test_phone_date_and_total_are_found_by_the_lines_that_show_them(printer):
    first, second = read_receipts(printer.print([printer.entry(3), printer.entry(4)]))
    assert (first.name, second.name) == ("003", "004")
    assert texts(first, "phone") == ["TEL: 03-5550003"]
    assert texts(first, "date") == ["DATE: 04/03/2018"]
    assert texts(first, "total") == ["13.35"]
    assert [line.box for line in first.sensitive] == [(20, 20, 120, 32), (20, 110, 120, 122), (120, 240, 160, 252)]


def test_pixels_are_the_scans(printer):
    entry = printer.entry(0)
    (receipt,) = read_receipts(printer.print([entry]))
    np.testing.assert_array_equal(receipt.pixels, np.asarray(printer.draw(entry)))
    assert receipt.pixels.shape == (300, 200)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("FAX 07-3558160", "phone"),
        ("H/P: 012 345 6789", "phone"),
        ("TEL & FAX NO : 07-388 2218", "phone"),
        ("HOTEL 1234567", None),
        ("TEL: 123", None),
        ("789417-1234", None),
        ("1 / 2 / 2018 8:13 PM", "date"),
        ("11/2/2018", "date"),
        ("1/3/2018", None),
        ("RM 9.00", "total"),
        ("TOTAL 9.00.", "total"),
        ("9.00", "total"),
        ("19.00", None),
        ("9.001", None),
        ("1,9.00", None),
        ("9.00,50", None),
    ],
)
def test_what_a_line_is_taken_for(printer, text, field):
    """The date is 1/2/2018, which 11/2/2018 shows as well: more is masked rather than less. The total is 9.00."""
    entry = printer.entry(0) | {"boxes": [[0, 0, 90, 12, text]], "key": {"date": "1/2/2018", "total": "9.00"}}
    (receipt,) = read_receipts(printer.print([entry]))
    assert [name for name, lines in receipt.fields.items() if lines] == ([field] if field else [])


def test_a_receipt_whose_key_names_nothing_has_its_phone_only(printer):
    (receipt,) = read_receipts(printer.print([printer.entry(0) | {"key": {"date": "", "total": ""}}]))
    assert [name for name, lines in receipt.fields.items() if lines] == ["phone"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("{cut off", "must be a JSON object, got '{cut off'"),
        ("[1, 2]", "must be a JSON object"),
        ("", "must be a JSON object"),
        ({"id": 7}, "id must be of type str, got 7"),
        ({"id": "../../x"}, "id must consist of letters, digits, _ and -, got '../../x'"),
        ({"w": None}, "w must be of type int, got None"),
        ({"h": 0}, r"w and h must be >= 1, got \(200, 0\)"),
        ({"key": []}, "key must be of type dict"),
        ({"boxes": [[0, 0, 9, 9, "a"], [0, 0, 9, 9]]}, r"boxes\[1\] must be \[left, top, right, bottom, text\], got"),
        ({"boxes": [[0, 0, 9, 9.5, "a"]]}, r"boxes\[0\] must be \[left, top"),
        (
            {"boxes": [[0, 0, 201, 9, "a"]]},
            r"boxes\[0\] must have a text and a box of positive size inside 200 x 300 pixels, got \[0, 0, 201",
        ),
        ({"boxes": [[9, 0, 9, 9, "a"]]}, r"boxes\[0\] must have a text and a box of positive size inside"),
        ({"boxes": [[0, 0, 9, 9, 5]]}, r"boxes\[0\] must have a text and a box of positive size inside"),
    ],
)
def test_a_broken_annotation_is_named_with_file_and_line(printer, changes, says):
    line = changes if isinstance(changes, str) else json.dumps(printer.entry(1) | changes)
    folder = printer.print([printer.entry(0), line, printer.entry(2)])
    printer.draw(printer.entry(1)).save(folder.root / "sroie" / "img" / "001.webp")
    with pytest.raises(ValueError, match=says) as caught:
        read_receipts(folder)
    assert "annotations.jsonl.gz line 2" in str(caught.value)


def test_a_missing_scan_is_named_with_the_line_that_wants_it(printer):
    folder = printer.print([printer.entry(0), printer.entry(1)])
    (folder.root / "sroie" / "img" / "001.webp").unlink()
    with pytest.raises(DatasetMissing, match=r"annotations\.jsonl\.gz line 2 .*holds sroie/img/001\.webp"):
        read_receipts(folder)


def test_a_scan_of_another_size_is_named(printer):
    folder = printer.print([printer.entry(0)])
    scan = folder.root / "sroie" / "img" / "000.webp"
    Image.new("L", (200, 299)).save(scan)
    with pytest.raises(ValueError, match=r"000\.webp must be 200 x 300 pixels as annotated, got \(200, 299\)"):
        read_receipts(folder)


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
