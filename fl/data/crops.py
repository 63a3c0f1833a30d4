"""Cuts windows of fixed size out of receipt images, around lines that show a phone number, a date or a total."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .receipts import FIELDS, Line, Receipt
from .regions import box_mask

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
