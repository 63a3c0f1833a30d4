"""Computes masks of the privacy-sensitive pixels of an image (PSI; Xiao et al. 2025)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# A pixel this bright belongs to the stroke.
_INK = 0.1


def stroke_box(images: Tensor) -> Tensor:
    """Return a mask of the smallest box around each image's pixels brighter than 0.1.

    ``images (n, c, h, w)`` give masks ``(n, h, w)``.

    Meant for digits on a black background; empty for a black image.
    """
    ink = images.numpy().max(1) > _INK
    down, across = _span(ink.any(2)), _span(ink.any(1))
    return torch.from_numpy(down[:, :, None] & across[:, None, :])


def box_mask(boxes: Sequence[tuple[int, int, int, int]], height: int, width: int) -> Tensor:
    """Return a boolean mask ``(height, width)`` that is true inside any of the boxes.

    Each box is (left, top, right, bottom).

    Right and bottom edges are exclusive; boxes are cut at the image's border.
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        # Negative edges count from the end in numpy and torch, so they are cut at 0.
        mask[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = True
    return mask


def _span(there: np.ndarray) -> np.ndarray:
    """``(n, k)``: true from the first true entry of each row to its last."""
    begun = np.logical_or.accumulate(there, axis=1)
    left = np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(begun & left, dtype=np.bool_)
