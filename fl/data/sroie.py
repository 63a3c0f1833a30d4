"""Data sets of scanned (SROIE) or synthetic receipt crops, labelled by the field shown or by whether tampered with.

Tampering pastes part of a number, from the same or another receipt, over a line with digits.

Copy-move and splice between annotated boxes, by pixels. This is not T-SROIE, in which a network rewrote the text (Wang
et al. 2022): results on one do not carry over to the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import BoolArray
from ..streams import Streams
from .data_folder import DataFolder
from .dataset import Dataset, fixed_order
from .receipts import (
    ANNOTATIONS,
    FIELDS,
    HEIGHT,
    WIDTH,
    Crop,
    Line,
    Receipt,
    crops_of,
    read_receipts,
    synthetic_receipts,
)

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


# One receipt in five is a test receipt with all its crops: crops of one receipt are too alike to be on both sides.
_TEST_SHARE = 5


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The crops of the training or of the test receipts, the number of each crop's receipt, and these receipts."""

    name: str
    crops: list[Crop]
    owners: list[int]
    receipts: list[Receipt]


def sroie(folder: DataFolder) -> Dataset:
    """Load the crops of scanned receipts, labelled by the sensitive field that each crop shows.

    Crops are grey; labels are numbered as in `receipts.FIELDS`.

    Masks are the boxes of all sensitive lines in the crop; owners are receipts. Raises what `read_receipts` raises.
    """
    return _dataset("sroie", _read(folder), _by_field, classes=len(FIELDS))


def sroie_tampered(folder: DataFolder) -> Dataset:
    """Load the crops of scanned receipts, half of them tampered with (label 1).

    See `tampering`; the targets of a segmentation mark the pasted pixels.

    Masks are those of the original crop. A splice takes its piece from a receipt of the same split, which may have
    another owner: a few pixels are then in two owners' crops.
    """
    return _dataset("sroie_tampered", _read(folder), _by_tampering, classes=2)


def drawn() -> Dataset:
    """Build a data set like that of `sroie` from synthetic receipts, which are drawn with a fixed seed.

    See ``synthetic_receipts``.
    """
    return _dataset("synthetic_receipts", _parts(synthetic_receipts(), "the drawn receipts"), _by_field, classes=3)


def drawn_tampered() -> Dataset:
    """Build a data set like that of `sroie_tampered` from synthetic receipts."""
    parts = _parts(synthetic_receipts(), "the drawn receipts")
    return _dataset("synthetic_receipts_tampered", parts, _by_tampering, classes=2)


_Labelled = tuple[NDArray[np.uint8], list[int], BoolArray | None]
"""Grey bytes ``(n, h, w)``, labels ``(n,)``, and the pixels that a segmentation has to find, ``(n, h, w)``."""


def _read(folder: DataFolder) -> tuple[_Part, _Part]:
    return _parts(read_receipts(folder), f"{folder.root}/{ANNOTATIONS}")


def _dataset(name: str, parts: tuple[_Part, _Part], label: Callable[[_Part], _Labelled], *, classes: int) -> Dataset:
    given = dict[str, dict[str, Tensor]]()
    for part in parts:
        pixels, labels, targets = label(part)
        given[part.name] = {
            "images": torch.from_numpy(pixels[:, None].astype(np.float32) / 255),
            "labels": torch.tensor(labels),
            "masks": torch.stack([crop.mask for crop in part.crops]),
        } | ({} if targets is None else {"targets": torch.from_numpy(targets)})
    tensors: dict[str, Any] = {f"{part}_{key}": held[key] for part, held in given.items() for key in held}
    return Dataset(name=name, classes=classes, train_owners=torch.tensor(parts[0].owners), **tensors)


def _parts(receipts: Sequence[Receipt], source: str) -> tuple[_Part, _Part]:
    """Training and test parts: no receipt is in both. ``source``: name of the receipts' origin, for the error.

    Raises:
        ValueError: if one of the parts has no crop.
    """
    # The same split for every seed: results of different seeds share their test set.
    order = fixed_order("receipts split", len(receipts)).tolist()
    cut = len(receipts) // _TEST_SHARE
    parts = []
    for name, chosen in (("train", sorted(order[cut:])), ("test", sorted(order[:cut]))):
        found = [(number, crop) for number in chosen for crop in crops_of(receipts[number])]
        if not found:
            raise ValueError(
                f"{source} must have enough receipts with a phone number, date or total to train "
                f"and to test, got {len(receipts)} receipts and no {name} crop"
            )
        owners, crops = zip(*found, strict=True)
        part = _Part(name=name, crops=list(crops), owners=list(owners), receipts=[receipts[one] for one in chosen])
        parts.append(part)
    return parts[0], parts[1]


def _by_field(part: _Part) -> _Labelled:
    return np.stack([crop.pixels for crop in part.crops]), [FIELDS.index(crop.field) for crop in part.crops], None


def _by_tampering(part: _Part) -> _Labelled:
    # Exactly half, so that always answering one class scores one half.
    chosen = set(fixed_order(f"tampered {part.name} crops", len(part.crops))[: len(part.crops) // 2].tolist())
    results = [
        _tampered(crop, part) if number in chosen else Tampered.untouched(crop)
        for number, crop in enumerate(part.crops)
    ]
    labels = [int(number in chosen) for number in range(len(results))]
    return np.stack([one.pixels for one in results]), labels, np.stack([one.changed for one in results])


def _tampered(crop: Crop, part: _Part) -> Tampered:
    others = [receipt for receipt in part.receipts if receipt is not crop.receipt]
    # One stream per crop: an additional receipt in the folder changes no other crop's draws.
    return tamper(crop, others, Streams(0).generator(f"tampering {crop.receipt.name} {crop.field}"))
