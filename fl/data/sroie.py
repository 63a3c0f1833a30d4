"""Data sets of scanned (SROIE) or synthetic receipt crops, labelled by the field shown or by whether tampered with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import BoolArray
from ..streams import Streams
from .crops import Crop, crops_of
from .data_folder import DataFolder
from .dataset import Dataset, fixed_order
from .receipts import ANNOTATIONS, FIELDS, Receipt, read_receipts
from .synthetic_receipts import synthetic_receipts
from .tampering import Tampered, tamper

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


@dataclass(frozen=True, kw_only=True)
class _Labelled:
    """Grey bytes ``(n, h, w)``, labels ``(n,)``, and the pixels that a segmentation has to find, ``(n, h, w)``."""

    pixels: NDArray[np.uint8]
    labels: list[int]
    targets: BoolArray | None = None


def _read(folder: DataFolder) -> tuple[_Part, _Part]:
    return _parts(read_receipts(folder), f"{folder.root}/{ANNOTATIONS}")


def _dataset(name: str, parts: tuple[_Part, _Part], label: Callable[[_Part], _Labelled], *, classes: int) -> Dataset:
    train, test = parts
    ours, theirs = label(train), label(test)
    return Dataset(
        name=name,
        train_images=_images(ours.pixels),
        train_labels=torch.tensor(ours.labels),
        test_images=_images(theirs.pixels),
        test_labels=torch.tensor(theirs.labels),
        classes=classes,
        train_masks=torch.stack([crop.mask for crop in train.crops]),
        test_masks=torch.stack([crop.mask for crop in test.crops]),
        train_targets=None if ours.targets is None else torch.from_numpy(ours.targets),
        test_targets=None if theirs.targets is None else torch.from_numpy(theirs.targets),
        train_owners=torch.tensor(train.owners),
    )


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
    return _Labelled(
        pixels=np.stack([crop.pixels for crop in part.crops]),
        labels=[FIELDS.index(crop.field) for crop in part.crops],
    )


def _by_tampering(part: _Part) -> _Labelled:
    # Exactly half, so that always answering one class scores one half.
    chosen = set(fixed_order(f"tampered {part.name} crops", len(part.crops))[: len(part.crops) // 2].tolist())
    results = [
        _tampered(crop, part) if number in chosen else Tampered.untouched(crop)
        for number, crop in enumerate(part.crops)
    ]
    return _Labelled(
        pixels=np.stack([result.pixels for result in results]),
        labels=[int(number in chosen) for number in range(len(results))],
        targets=np.stack([result.changed for result in results]),
    )


def _tampered(crop: Crop, part: _Part) -> Tampered:
    others = [receipt for receipt in part.receipts if receipt is not crop.receipt]
    # One stream per crop: an additional receipt in the folder changes no other crop's draws.
    return tamper(crop, others, Streams(0).generator(f"tampering {crop.receipt.name} {crop.field}"))


def _images(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels[:, None].astype(np.float32) / 255)
