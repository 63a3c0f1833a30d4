"""Tampers with receipts: pastes part of a number, from the same or another receipt, over a line with digits.

Copy-move and splice between annotated boxes, by pixels. This is not T-SROIE, in which a network rewrote the text (Wang
et al. 2022): results on one do not carry over to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...audit.arrays import BoolArray
from .crops import HEIGHT, WIDTH, Crop
from .receipts import Line, Receipt

# A line must show so many pixels in each direction to be worth forging.
_LEAST = 4
# Lines whose heights differ by at most so many pixels look like one print.
_ALIKE = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Tampered:
    """A receipt crop after tampering, with a mask of the pixels that were pasted.

    ``pixels`` and ``changed`` have shape ``(HEIGHT, WIDTH)``.
    """

    pixels: NDArray[np.uint8]
    changed: BoolArray

    @classmethod
    def untouched(cls, crop: Crop) -> "Tampered":
        """Return the crop without tampering, with an empty mask."""
        return cls(pixels=crop.pixels, changed=np.zeros(crop.pixels.shape, dtype=np.bool_))


def tamper(crop: Crop, others: Sequence[Receipt], rng: np.random.Generator) -> Tampered:
    """Tamper with a crop: paste part of another number over one of its lines that has digits.

    A coin decides between a copy-move (from the same receipt) and a splice (from one of ``others``), where both have a
    suitable number. Line, donor, width and place are random; donors have about the same height where there are any. Raw
    bits are drawn, so the result is the same with every version of numpy.

    Raises:
        ValueError: if no line in the crop has digits, or there is no other number to put there.
    """
    lines = [line for line in crop.receipt.lines if _digits(line.text)]
    targets = [(line, box) for line in lines if (box := _visible(crop, line))]
    if not targets:
        raise ValueError(f"the {crop.field} of receipt {crop.receipt.name} must show digits in its crop, got none")
    line, box = targets[_below(rng, len(targets))]
    sources = [crop.receipt, *([others[_below(rng, len(others))]] if others else [])]
    for source in sources[:: 1 if _below(rng, 2) else -1]:
        donors = _donors(source, line.text)
        if donors:
            done = _pasted(crop.pixels, box, source.pixels, _alike(donors, line, rng), rng)
            # Equal pixels would be labelled as tampered with although nothing changed.
            if (done.pixels != crop.pixels).any():
                return done
    raise ValueError(f"no number was found to paste over {line.text!r:.20} on receipt {crop.receipt.name} or on others")


def _donors(receipt: Receipt, text: str) -> list[Line]:
    """Lines that are mostly digits, so that a piece is likely to contain some, and that differ from ``text``."""
    return [
        line
        for line in receipt.lines
        if 2 * _digits(line.text) >= max(1, len("".join(line.text.split())))
        and line.text != text
        and min(line.right - line.left, line.bottom - line.top) >= _LEAST
    ]


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _visible(crop: Crop, line: Line) -> tuple[int, int, int, int] | None:
    """The part of a line's box that the crop shows; None where that is too small."""
    left, top, right, bottom = crop.within(line)
    left, top, right, bottom = max(0, left), max(0, top), min(WIDTH, right), min(HEIGHT, bottom)
    return (left, top, right, bottom) if min(right - left, bottom - top) >= _LEAST else None


def _alike(donors: Sequence[Line], line: Line, rng: np.random.Generator) -> Line:
    """A donor of about the line's height, or of the nearest height."""
    gaps = [abs((donor.bottom - donor.top) - (line.bottom - line.top)) for donor in donors]
    near = [donor for donor, gap in zip(donors, gaps, strict=True) if gap <= max(_ALIKE, min(gaps))]
    return near[_below(rng, len(near))]


def _pasted(
    pixels: NDArray[np.uint8],
    box: tuple[int, int, int, int],
    source: NDArray[np.uint8],
    donor: Line,
    rng: np.random.Generator,
) -> Tampered:
    """Paste a piece between one height wide (about two digits) and the narrower line's width over a part of ``box``."""
    left, top, right, bottom = box
    height = min(bottom - top, donor.bottom - donor.top)
    most = min(right - left, donor.right - donor.left)
    least = min(most, height)
    width = least + _below(rng, most - least + 1)
    to_left = left + _below(rng, right - left - width + 1)
    from_left = donor.left + _below(rng, donor.right - donor.left - width + 1)
    to_top, from_top = top + (bottom - top - height) // 2, donor.top + (donor.bottom - donor.top - height) // 2
    result, changed = pixels.copy(), np.zeros(pixels.shape, dtype=np.bool_)
    place = np.s_[to_top : to_top + height, to_left : to_left + width]
    result[place] = source[from_top : from_top + height, from_left : from_left + width]
    changed[place] = True
    return Tampered(pixels=result, changed=changed)


def _below(rng: np.random.Generator, count: int) -> int:
    """A number in 0..count - 1; the bias of a remainder of 64 bits is negligible."""
    return int(rng.bit_generator.random_raw()) % count
