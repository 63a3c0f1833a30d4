"""Sensitive regions: which pixels of an image are privacy-sensitive information (PSI; Xiao et al. 2025)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_INK = 0.1
"""A pixel this bright belongs to the stroke."""


def stroke_box(images: Tensor) -> Tensor:
    """Masks ``(n, h, w)`` of ``images (n, c, h, w)``: the smallest box around what is brighter than .1, the region of
    digits on a black ground. Empty for a black image.
    """
    ink = images.numpy().max(1) > _INK
    down, across = _span(ink.any(2)), _span(ink.any(1))
    return torch.from_numpy(down[:, :, None] & across[:, None, :])


def box_mask(boxes: Sequence[tuple[int, int, int, int]], height: int, width: int) -> Tensor:
    """Mask ``(height, width)`` of the pixels in any of ``boxes``, each (left, top, right, bottom) with the right and
    the bottom edge outside; what reaches beyond the image is cut off.
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        mask[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = True
    return mask


def _span(there: np.ndarray) -> np.ndarray:
    """``(n, k)``: true from the first true entry of a row to its last."""
    begun = np.logical_or.accumulate(there, axis=1)
    left = np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(begun & left, dtype=np.bool_)
