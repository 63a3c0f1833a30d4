"""Compute image similarity inside and outside a mask of privacy-sensitive pixels (PSI)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ...audit.arrays import BoolArray, FloatArray
from .images import LpipsScorer, checked_pair, psnr, ssim_window


@dataclass(frozen=True, kw_only=True)
class RegionScore:
    """The similarity scores of one image: fields ``psi_...`` inside its mask, ``outside_...`` on the other pixels, PSNR
    in decibels.

    A score is None where the region has no pixels, and ``psi_lpips`` and ``outside_lpips`` where LPIPS is unavailable.
    """

    psi_mse: float | None
    psi_psnr: float | None
    psi_ssim: float | None
    outside_mse: float | None
    outside_psnr: float | None
    outside_ssim: float | None
    psi_lpips: float | None = None
    outside_lpips: float | None = None


def score_regions(
    reconstructions: ArrayLike, truth: ArrayLike, masks: ArrayLike, lpips: LpipsScorer | None = None
) -> list[RegionScore]:
    """Score reconstructed image i against original i, both ``(n, c, h, w)`` in [0, 1], inside and outside ``masks (n,
    h, w)``.

    The masks belong to the truth, so that a reconstruction cannot move pixels from one region to the other. SSIM is the
    map of `score_images`, averaged over the region's pixels; its window extends up to 3 pixels across the border. LPIPS
    is defined on whole images: the pixels outside the region are replaced by the truth's, so that a small region has a
    small distance. ``lpips``: the result of `lpips_scorer`, None to leave it out.

    Raises:
        ValueError: for unequal shapes, values outside [0, 1] or masks that are not ``(n, h, w)`` booleans.
    """
    images, target = checked_pair(reconstructions, truth)
    chosen = np.asarray(masks)
    if chosen.dtype != np.bool_ or chosen.shape != (len(images), *images.shape[2:]):
        raise ValueError(
            f"masks must be booleans of shape {(len(images), *images.shape[2:])}, "
            f"got shape {chosen.shape} of {chosen.dtype}"
        )
    scores = [_scored(*each) for each in zip(images, target, chosen, strict=True)]
    if lpips is None:
        return scores
    # Outside the region both images are the truth, so that only the region contributes to the distance.
    inside, outside = (lpips(np.where(region[:, None], images, target), target) for region in (chosen, ~chosen))
    return [
        replace(
            score,
            psi_lpips=None if score.psi_mse is None else float(within),
            outside_lpips=None if score.outside_mse is None else float(beyond),
        )
        for score, within, beyond in zip(scores, inside, outside, strict=True)
    ]


def _scored(image: FloatArray, truth: FloatArray, mask: BoolArray) -> RegionScore:
    errors, similarity = (image - truth) ** 2, _similarity(image, truth)
    inside, outside = (_means(errors, similarity, region) for region in (mask, ~mask))
    return RegionScore(
        psi_mse=inside[0],
        psi_psnr=None if inside[0] is None else psnr(inside[0]),
        psi_ssim=inside[1],
        outside_mse=outside[0],
        outside_psnr=None if outside[0] is None else psnr(outside[0]),
        outside_ssim=outside[1],
    )


def _means(errors: FloatArray, similarity: FloatArray, region: BoolArray) -> tuple[float, float] | tuple[None, None]:
    # The mean of no pixel would be NaN, which a record cannot hold.
    if not region.any():
        return None, None
    return float(errors[:, region].mean()), float(similarity[:, region].mean())


def _similarity(image: FloatArray, truth: FloatArray) -> FloatArray:
    """SSIM of each pixel's window, ``(c, h, w)``."""
    from skimage.metrics import structural_similarity

    similarity: Callable[..., tuple[float, FloatArray]] = structural_similarity
    return similarity(truth, image, win_size=ssim_window(image), data_range=1.0, channel_axis=0, full=True)[1]
