"""Receipts: scans of SROIE (ICDAR 2019) with lines, boxes and sensitive fields, or drawn ones with the same fields.

Crops of fixed size are cut out around lines that show a phone number, a date or a total.

Receipts drawn with a fixed seed make everything that needs receipts run without a download. Each has its own paper, ink
and grain, by which a pasted piece of another one can be recognised. The print is one bitmap font, far simpler than a
scan: results on these do not carry over to real receipts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import BoolArray
from ...audit.output_file import parsed_json
from ..streams import Streams
from .data_folder import DataFolder
from .dataset import box_mask

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
    """A scanned receipt with its text lines; it states which lines show each sensitive field.

    ``pixels``: grey bytes ``(height, width)``; ``fields``: the lines of each field, () for none.
    """

    name: str
    pixels: NDArray[np.uint8]
    lines: tuple[Line, ...]
    fields: Mapping[str, tuple[Line, ...]]

    @property
    def sensitive(self) -> tuple[Line, ...]:
        """The text lines that show any sensitive field."""
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
    texts = folder.text(ANNOTATIONS, of="sroie").splitlines()
    return [_receipt(folder, text, f"{folder.root}/{ANNOTATIONS} line {n}") for n, text in enumerate(texts, start=1)]


def _receipt(folder: DataFolder, text: str, where: str) -> Receipt:
    entry = _entry(text, where)
    size = entry["w"], entry["h"]
    if min(size) < 1:
        raise ValueError(f"{where}: w and h must be >= 1, got {size}")
    lines = tuple(_line(box, size, f"{where}: boxes[{place}]") for place, box in enumerate(entry["boxes"]))
    scan = f"{Path(ANNOTATIONS).parent}/img/{entry['id']}.webp"
    pixels = folder.image(scan, "L", of=f"the receipt of {where}")
    if pixels.shape != size[::-1]:
        raise ValueError(f"{scan} must be {size[0]} x {size[1]} pixels as annotated, got {pixels.shape[::-1]}")
    return Receipt(name=entry["id"], pixels=pixels, lines=lines, fields=fields_of(lines, entry["key"]))


def _entry(text: str, where: str) -> dict[str, Any]:
    try:
        entry = parsed_json(text)
    except ValueError as error:
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


def _line(box: Any, size: tuple[int, int], where: str) -> Line:
    if not (isinstance(box, list) and len(box) == 5 and all(type(edge) is int for edge in box[:4])):
        raise ValueError(f"{where} must be [left, top, right, bottom, text], got {box!r:.60}")
    left, top, right, bottom, text = box
    if not (0 <= left < right <= size[0] and 0 <= top < bottom <= size[1] and isinstance(text, str)):
        raise ValueError(
            f"{where} must have a text and a box of positive size inside {size[0]} x {size[1]} pixels, got {box!r:.60}"
        )
    return Line(left=left, top=top, right=right, bottom=bottom, text=text)


def fields_of(lines: Sequence[Line], key: Mapping[str, Any]) -> dict[str, tuple[Line, ...]]:
    """Find the text lines that show each sensitive field: phone number, date and total.

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


COUNT = 150
_WIDTH, _MARGIN, _PITCH = 256, 12, 20
# How often a dot of the font is repeated in each direction.
_ACROSS, _DOWN = 1, 2
_ADVANCE = 7

# Five columns of seven dots, the lowest bit on top.
_FONT = {
    " ": "0000000000", "0": "3e5149453e", "1": "00427f4000", "2": "4261514946", "3": "2141454b31",
    "4": "1814127f10", "5": "2745454539", "6": "3c4a494930", "7": "0171090503", "8": "3649494936",
    "9": "064949291e", ":": "0036360000", ".": "0060600000", "-": "0808080808", "/": "2010080402",
    "A": "7e1111117e", "B": "7f49494936", "C": "3e41414122", "D": "7f4141221c", "E": "7f49494941",
    "F": "7f09090901", "G": "3e4149497a", "H": "7f0808087f", "I": "00417f4100", "J": "2040413f01",
    "K": "7f08142241", "L": "7f40404040", "M": "7f020c027f", "N": "7f0408107f", "O": "3e4141413e",
    "P": "7f09090906", "Q": "3e4151215e", "R": "7f09192946", "S": "4649494931", "T": "01017f0101",
    "U": "3f4040403f", "V": "1f2040201f", "W": "3f4038403f", "X": "6314081463", "Y": "0708700807",
    "Z": "6151494543",
}  # fmt: skip
_SHOPS = ("GREEN LEAF", "OLD MILL", "BLUE DOOR", "CORNER", "SUNNY HILL", "RIVER", "TWO OAKS", "NORTH STAR")
_KINDS = ("MART", "BAKERY", "CAFE", "BOOKS", "TOOLS", "GROCER")
_STREETS = ("LONG LANE", "MARKET ROW", "MILL ROAD", "HIGH STREET", "STATION ROAD")
_GOODS = ("TEA", "BREAD", "RICE", "SOAP", "PENCIL", "MILK", "SALT", "LAMP", "ROPE", "PAPER", "NAILS", "JAM")

Below = Callable[[int], int]
"""count -> a random number in 0..count - 1."""


def synthetic_receipts() -> list[Receipt]:
    """Draw the synthetic receipts, which are identical on every machine.

    There are ``COUNT`` receipts, each 256 pixels wide.
    """
    return [_drawn(number) for number in range(COUNT)]


def _drawn(number: int) -> Receipt:
    raw = Streams(0).generator(f"synthetic receipt {number}").bit_generator

    # Raw bits and integer arithmetic only: no distribution of numpy's and no rounding that could differ.
    def below(count: int) -> int:
        return int(raw.random_raw()) % count

    texts, key = _fields(below)
    height = _PITCH * (len(texts) + 1)
    paper, ink, grain = 205 + below(46), 15 + below(70), 1 + below(12)
    dots, lines = np.zeros((height, _WIDTH), dtype=np.bool_), []
    for place, text in enumerate(texts):
        printed = _printed(text)
        top = _PITCH // 2 + place * _PITCH
        left = _MARGIN + below(_WIDTH - 2 * _MARGIN - printed.shape[1] + 1)
        bottom, right = top + printed.shape[0], left + printed.shape[1]
        dots[top:bottom, left:right] = printed
        lines.append(Line(left=left, top=top, right=right, bottom=bottom, text=text))
    noise = (raw.random_raw(height * _WIDTH) % np.uint64(2 * grain + 1)).astype(np.int64).reshape(height, _WIDTH)
    grey = np.where(dots, ink, paper) + noise - grain
    pixels = np.clip(grey, 0, 255).astype(np.uint8)
    return Receipt(name=f"drawn-{number}", pixels=pixels, lines=tuple(lines), fields=fields_of(lines, key))


def _fields(below: Below) -> tuple[list[str], dict[str, str]]:
    """Lines from top to bottom, and the date and total among them; crops around the fields do not overlap."""

    def one_of(words: tuple[str, ...]) -> str:
        return words[below(len(words))]

    date = f"{1 + below(28):02d}/{1 + below(12):02d}/{2010 + below(15)}"
    prices = [50 + 5 * below(500) for _ in range(4 + below(4))]
    total, paid = sum(prices), sum(prices) + 5 * below(400)
    texts = [
        f"{one_of(_SHOPS)} {one_of(_KINDS)}",
        # No real phone number starts with 00-0.
        f"TEL 00-0{below(10**6):06d}",
        f"{1 + below(99)} {one_of(_STREETS)}",
        f"TILL {1 + below(9)} NO {below(10**5):05d}",
        "THANK YOU",
        "",
        f"DATE {date}",
        f"TIME {8 + below(12):02d}:{below(60):02d}",
        "",
        *(f"{one_of(_GOODS)} {_money(price)}" for price in prices),
        f"TOTAL {_money(total)}",
        f"CASH {_money(paid)}",
        f"CHANGE {_money(paid - total)}",
        "",
    ]
    return [text or "-" for text in texts], {"date": date, "total": _money(total)}


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _printed(text: str) -> BoolArray:
    """``(height, width)``, true where there is ink."""
    dots = np.zeros((7, _ADVANCE * len(text)), dtype=np.bool_)
    for place, sign in enumerate(text):
        columns = np.frombuffer(bytes.fromhex(_FONT[sign]), dtype=np.uint8)
        start = place * _ADVANCE + 1
        dots[:, start : start + 5] = np.unpackbits(columns[None], axis=0, bitorder="little")[:7].astype(np.bool_)
    return dots.repeat(_DOWN, axis=0).repeat(_ACROSS, axis=1)


HEIGHT, WIDTH = 64, 128
"""Pixels of a crop: about three lines of text."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Crop:
    """A window of fixed size in a receipt image, around a text line that shows the sensitive ``field`` (a date, say).

    Its upper left pixel is (``left``, ``top``).
    """

    receipt: Receipt
    field: str
    left: int
    top: int

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """Return the crop's grey values as an array of bytes, shape ``(HEIGHT, WIDTH)``."""
        return self.receipt.pixels[self.top : self.top + HEIGHT, self.left : self.left + WIDTH]

    @property
    def mask(self) -> Tensor:
        """Return a boolean mask ``(HEIGHT, WIDTH)`` that is true on every text line that shows a sensitive field."""
        return box_mask([self.within(line) for line in self.receipt.sensitive], HEIGHT, WIDTH)

    def within(self, line: Line) -> tuple[int, int, int, int]:
        """Return the box of a line in the crop's coordinates, as (left, top, right, bottom).

        The box may extend beyond the crop.
        """
        return line.left - self.left, line.top - self.top, line.right - self.left, line.bottom - self.top


def crops_of(receipt: Receipt) -> list[Crop]:
    """Return at most one crop per sensitive field, centred on the field's line unless the receipt's border prevents it.

    The line is the first that shows the field; for totals it is the one nearest to a line with the word "total".

    Raises:
        ValueError: if the receipt is smaller than a crop.
    """
    height, width = receipt.pixels.shape
    if height < HEIGHT or width < WIDTH:
        raise ValueError(f"receipt {receipt.name} must have at least {WIDTH} x {HEIGHT} pixels, got {width} x {height}")
    crops: list[Crop] = []
    for field, line in _shown(receipt):
        left = min(max(0, (line.left + line.right - WIDTH) // 2), width - WIDTH)
        top = min(max(0, (line.top + line.bottom - HEIGHT) // 2), height - HEIGHT)
        # Crops share no pixel, so that one may be trained on and another not: a date next to the phone number has none.
        if all(abs(left - other.left) >= WIDTH or abs(top - other.top) >= HEIGHT for other in crops):
            crops.append(Crop(receipt=receipt, field=field, left=left, top=top))
    return crops


def _shown(receipt: Receipt) -> Iterator[tuple[str, Line]]:
    """Each field of the receipt with the line around which its crop is placed."""
    for field in FIELDS:
        lines = receipt.fields[field]
        if lines:
            yield field, _nearest_to_word(lines, receipt.lines) if field == "total" else lines[0]


def _nearest_to_word(totals: Sequence[Line], lines: Sequence[Line]) -> Line:
    named = [line.top for line in lines if "TOTAL" in line.text.upper()]
    return min(totals, key=lambda line: min((abs(line.top - top) for top in named), default=0))
