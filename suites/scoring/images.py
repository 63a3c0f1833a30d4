"""Compute the similarity of a reconstructed and the original image, with pixels in [0, 1]."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...audit.arrays import FloatArray, IntArray
from ..config.compatibility import LEAST_SIDE

PSNR_CAP = 100.0
"""Decibels of a perfect reconstruction, because a record cannot hold infinity; reached at an MSE of 1e-10."""

LpipsScorer = Callable[[ArrayLike, ArrayLike], FloatArray]
"""(images, truth), each ``(n, c, h, w)`` in [0, 1] -> ``(n,)``, lower is more similar."""


@dataclass(frozen=True, kw_only=True)
class ImageScore:
    """The similarity scores of one image. The more was leaked, the lower ``mse`` and ``lpips``, and the higher ``psnr``
    (dB, at most 100) and ``ssim``.

    ``lpips`` is None where it was not measured.
    """

    mse: float
    psnr: float
    ssim: float
    lpips: float | None = None


def score_images(reconstructions: ArrayLike, truth: ArrayLike, lpips: LpipsScorer | None = None) -> list[ImageScore]:
    """Score reconstructed image i against original image i; both are arrays ``(n, c, h, w)`` in [0, 1]. If the order is
    unknown, apply `match` first.

    SSIM is scikit-image's (Wang et al. 2004) with data range 1 and a flat window of 7 pixels (the largest odd one that
    fits a smaller image), averaged over channels. ``lpips``: the result of `lpips_scorer`, None to leave it out. Raises
    ValueError for unequal shapes, values outside [0, 1] or images smaller than 3 pixels.
    """
    images, target = checked_pair(reconstructions, truth)
    errors = ((images - target) ** 2).mean((1, 2, 3))
    perceptual = [None] * len(images) if lpips is None else lpips(images, target).tolist()
    return [
        ImageScore(mse=float(error), psnr=psnr(float(error)), ssim=_ssim(image, wanted), lpips=distance)
        for error, image, wanted, distance in zip(errors, images, target, perceptual, strict=True)
    ]


def psnr(mse: float) -> float:
    """Return the peak signal-to-noise ratio ``-10 log10(mse)`` in decibels for pixels in [0, 1], at most `PSNR_CAP`;
    raise ValueError for mse < 0.
    """
    if not mse >= 0:
        raise ValueError(f"mse, a mean squared error, must be >= 0, got {mse}")
    return PSNR_CAP if mse == 0 else min(PSNR_CAP, float(-10 * np.log10(mse)))


def match(reconstructions: ArrayLike, truth: ArrayLike) -> IntArray:
    """Match reconstructed images to originals by the least total MSE (Kuhn 1955); return ``permutation``, such that
    ``reconstructions[permutation]`` is in the order of the originals.

    It is meant for the images of one batch, whose order a gradient does not reveal. Both are ``(n, c, h, w)`` in
    [0, 1]; the permutation is ``(n,)``.
    """
    from scipy.optimize import linear_sum_assignment  # Lazy: half a second.

    images, target = checked_pair(reconstructions, truth)
    # Row by row: the whole (n, n, c, h, w) difference would take gigabytes for large lots.
    cost = np.array([((images - wanted) ** 2).mean((1, 2, 3)) for wanted in target])
    return np.asarray(linear_sum_assignment(cost)[1], dtype=np.int64)


def _ssim(image: FloatArray, truth: FloatArray) -> float:
    from skimage.metrics import structural_similarity

    similarity: Callable[..., float] = structural_similarity
    return float(similarity(truth, image, win_size=ssim_window(image), data_range=1.0, channel_axis=0))


def ssim_window(image: FloatArray) -> int:
    """Return the side length of SSIM's window: 7 pixels, or the largest odd number that fits into ``image (c,
    h, w)``.
    """
    side = min(7, *image.shape[1:])
    return int(side - 1 + side % 2)


def checked_pair(reconstructions: ArrayLike, truth: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both image arrays ``(n, c, h, w)`` as float64; raise ValueError for unequal shapes or values outside [0,
    1].
    """
    images, target = np.asarray(reconstructions, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if images.ndim != 4 or images.shape != target.shape or min(images.shape) < 1 or min(images.shape[2:]) < LEAST_SIDE:
        raise ValueError(
            f"images and truth must have the same shape (n, channel, height, width) and at least "
            f"{LEAST_SIDE} pixels per side, "
            f"got {images.shape} and {target.shape}"
        )
    for name, array in (("images", images), ("truth", target)):
        if not (array.min() >= 0 and array.max() <= 1):
            raise ValueError(f"{name} must lie in [0, 1], got {array.min()} to {array.max()}")
    return images, target
