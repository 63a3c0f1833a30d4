"""Draws synthetic receipts with a fixed seed; they have the fields of scanned ones but no real data.

They make everything that needs receipts run without a download. Each receipt has its own paper, ink and grain, by which
a pasted piece of another one can be recognised. The print is one bitmap font, far simpler than a scan: results on these
do not carry over to real receipts.
"""

from collections.abc import Callable

import numpy as np

from ...audit.arrays import BoolArray
from ..streams import Streams
from .receipts import Line, Receipt, fields_of

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
    return [_receipt(number) for number in range(COUNT)]


def _receipt(number: int) -> Receipt:
    raw = Streams(0).generator(f"synthetic receipt {number}").bit_generator

    # Raw bits and integer arithmetic only: no distribution of numpy's and no rounding that could differ.
    def below(count: int) -> int:
        return int(raw.random_raw()) % count

    texts, key = _texts(below)
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


def _texts(below: Below) -> tuple[list[str], dict[str, str]]:
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
