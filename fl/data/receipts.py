"""Reads the receipts of SROIE (ICDAR 2019): scans, text lines with boxes, and which lines show sensitive fields."""

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from .data_folder import DataFolder

ANNOTATIONS = "sroie/annotations.jsonl.gz"
FIELDS = ("phone", "date", "total")
"""The sensitive fields of a receipt."""

_PHONE = re.compile(r"\b(TEL|TELEPHONE|PHONE|FAX|H/?P|MOBILE|HOTLINE|CONTACT)\b", re.IGNORECASE)
# A word such as TEL also stands in front of shorter numbers, which are no phone numbers.
_PHONE_DIGITS = 7


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of text on a receipt, and its box in pixels; right and bottom edges are exclusive."""

    left: int
    top: int
    right: int
    bottom: int
    text: str

    @property
    def box(self) -> tuple[int, int, int, int]:
        """The line's box as (left, top, right, bottom)."""
        return self.left, self.top, self.right, self.bottom


@dataclass(frozen=True, kw_only=True, eq=False)
class Receipt:
    """A scanned receipt with its text lines and the lines that show each sensitive field.

    ``pixels``: grey bytes ``(height, width)``; ``fields``: the lines of each field, () for none.
    """

    name: str
    pixels: NDArray[np.uint8]
    lines: tuple[Line, ...]
    fields: Mapping[str, tuple[Line, ...]]

    @property
    def sensitive(self) -> tuple[Line, ...]:
        """The lines that show any sensitive field."""
        return tuple(line for field in FIELDS for line in self.fields[field])


def read_receipts(folder: DataFolder) -> list[Receipt]:
    """Read all annotated receipts from the folder, in the order of the annotation file.

    A line is a phone number where it has a word for one and seven digits. It is a date or a total where it shows what
    the annotation's key gives as such (the date ignoring spaces; the amount as a number of its own). A field is
    sensitive wherever it stands on a receipt, so a price that equals the total is sensitive too.

    Raises:
        DatasetMissing: if the annotations or a scan that they list are not in ``folder``.
        ValueError: if an annotation or a scan cannot be read; the message gives file and line.
    """
    path = folder.file(ANNOTATIONS, of="sroie")
    receipts = []
    for number, text in enumerate(_texts(path), start=1):
        where = f"{path} line {number}"
        entry = _entry(text, where)
        scan = folder.file(f"{Path(ANNOTATIONS).parent}/img/{entry['id']}.webp", of=f"the receipt of {where}")
        size = _size(entry, where)
        lines = tuple(_line(box, size, f"{where}: boxes[{place}]") for place, box in enumerate(entry["boxes"]))
        receipts.append(
            Receipt(name=entry["id"], pixels=_pixels(scan, size), lines=lines, fields=fields_of(lines, entry["key"]))
        )
    return receipts


def _texts(path: Path) -> list[str]:
    try:
        return gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a gzip file of text: {error}") from error


def _entry(text: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} must be a JSON object, got {text[:40]!r}: {error}") from error
    if not isinstance(entry, dict):
        raise ValueError(f"{where} must be a JSON object, got {text[:40]!r}")
    for name, kind in (("id", str), ("w", int), ("h", int), ("boxes", list), ("key", dict)):
        if not isinstance(entry.get(name), kind):
            raise ValueError(f"{where}: {name} must be of type {kind.__name__}, got {entry.get(name)!r:.40}")
    # The id becomes part of a path: without this check it could leave the folder.
    if not re.fullmatch(r"\w[\w-]*", entry["id"]):
        raise ValueError(f"{where}: id must consist of letters, digits, _ and -, got {entry['id']!r}")
    return entry


def _size(entry: Mapping[str, Any], where: str) -> tuple[int, int]:
    size = entry["w"], entry["h"]
    if min(size) < 1:
        raise ValueError(f"{where}: w and h must be >= 1, got {size}")
    return size


def _line(box: Any, size: tuple[int, int], where: str) -> Line:
    if not (isinstance(box, list) and len(box) == 5 and all(type(edge) is int for edge in box[:4])):
        raise ValueError(f"{where} must be [left, top, right, bottom, text], got {box!r:.60}")
    left, top, right, bottom, text = box
    if not (0 <= left < right <= size[0] and 0 <= top < bottom <= size[1] and isinstance(text, str)):
        raise ValueError(
            f"{where} must have a text and a box of positive size inside {size[0]} x {size[1]} pixels, got {box!r:.60}"
        )
    return Line(left=left, top=top, right=right, bottom=bottom, text=text)


def _pixels(scan: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    try:
        pixels = np.asarray(Image.open(scan).convert("L"))
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{scan} must be an image: {error}") from error
    if pixels.shape != size[::-1]:
        raise ValueError(f"{scan} must be {size[0]} x {size[1]} pixels as annotated, got {pixels.shape[::-1]}")
    return pixels


def fields_of(lines: Sequence[Line], key: Mapping[str, Any]) -> dict[str, tuple[Line, ...]]:
    """Return which lines show each sensitive field: phone number, date and total.

    ``key`` gives the date and the total; see `read_receipts`.
    """
    date, amount = _spaceless(str(key.get("date", ""))), re.search(r"\d[\d,]*(\.\d+)?", str(key.get("total", "")))
    # Not within a longer number: 9.00 is not in 19.00, nor in 9.001.
    total = amount and re.compile(rf"(?<![\d.,]){re.escape(amount.group())}(?![\d]|[.,]\d)")
    return {
        "phone": tuple(line for line in lines if _is_phone(line.text)),
        "date": tuple(line for line in lines if date and date in _spaceless(line.text)),
        "total": tuple(line for line in lines if total and total.search(line.text)),
    }


def _is_phone(text: str) -> bool:
    return bool(_PHONE.search(text)) and sum(map(str.isdigit, text)) >= _PHONE_DIGITS


def _spaceless(text: str) -> str:
    return "".join(text.split())
