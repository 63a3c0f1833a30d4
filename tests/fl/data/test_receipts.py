"""Receipts drawn for the test: which lines are sensitive, and the errors for broken annotations."""

import gzip
import json

import numpy as np
import pytest
from fedassay.fl.data.dataset import DatasetMissing
from fedassay.fl.data.receipts import ANNOTATIONS, read_receipts
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


def test_a_scan_of_another_size_or_kind_is_named(printer):
    folder = printer.print([printer.entry(0)])
    scan = folder.root / "sroie" / "img" / "000.webp"
    Image.new("L", (200, 299)).save(scan)
    with pytest.raises(ValueError, match=r"000\.webp must be 200 x 300 pixels as annotated, got \(200, 299\)"):
        read_receipts(folder)
    scan.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"000\.webp must be an image"):
        read_receipts(folder)


@pytest.mark.parametrize(
    "content",
    [b"text", gzip.compress(b"\xff\xfe"), gzip.compress(b"{}" * 99)[:-8]],
    ids=["no gzip", "no text", "cut short"],
)
def test_annotations_that_are_no_gzip_of_text_are_named(printer, content):
    folder = printer.print([printer.entry(0)])
    (folder.root / ANNOTATIONS).write_bytes(content)
    with pytest.raises(ValueError, match=r"annotations\.jsonl\.gz must be a gzip file of text"):
        read_receipts(folder)
