"""Regions: image scores inside and outside the pixels that are privacy-sensitive (PSI), and success rates."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.binomial import upper_bound
from .images import FloatArray, checked_pair, psnr, ssim_window

_INK = 0.1
"""A pixel this bright belongs to the stroke."""


@dataclass(frozen=True, kw_only=True)
class RegionScore:
    """One image: ``psi_`` inside its mask, ``outside_`` the other pixels; None where there are none. PSNR in dB."""

    psi_mse: float | None
    psi_psnr: float | None
    psi_ssim: float | None
    outside_mse: float | None
    outside_psnr: float | None
    outside_ssim: float | None


@dataclass(frozen=True, kw_only=True)
class SuccessRate:
    """``successes`` of ``n``, with a two-sided Clopper-Pearson interval."""

    successes: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Share of successes."""
        return self.successes / self.n


def stroke_box(images: ArrayLike) -> NDArray[np.bool_]:
    """Masks ``(n, h, w)`` of ``images (n, c, h, w)``: the smallest box around what is brighter than .1, the default
    region of digits on a black ground. Empty for a black image.
    """
    ink = np.asarray(images).max(1) > _INK
    masks = np.zeros(ink.shape, dtype=np.bool_)
    for mask, drawn in zip(masks, ink, strict=True):
        down, across = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
        if len(down):
            mask[down[0] : down[-1] + 1, across[0] : across[-1] + 1] = True
    return masks


def score_regions(reconstructions: ArrayLike, truth: ArrayLike, masks: ArrayLike) -> list[RegionScore]:
    """Score image i against truth i, both ``(n, c, h, w)`` in [0, 1], inside and outside ``masks (n, h, w)``.

    The masks are made of the truth: what an attack guesses moves no pixel from one region to the other. SSIM is
    `score_images`' map, averaged over the region's pixels; its window looks up to 3 pixels across the border.

    Raises:
        ValueError: for unequal shapes, values outside [0, 1] or masks that are not ``(n, h, w)`` booleans.
    """
    images, target = checked_pair(reconstructions, truth)
    chosen = np.asarray(masks)
    if chosen.dtype != np.bool_ or chosen.shape != (len(images), *images.shape[2:]):
        raise ValueError(
            f"masks must be {(len(images), *images.shape[2:])} booleans, got {chosen.shape} of {chosen.dtype}"
        )
    return [_scored(*each) for each in zip(images, target, chosen, strict=True)]


def success_rate(scores: ArrayLike, *, threshold: float, alpha: float = 0.05) -> SuccessRate:
    """Share of ``scores (n,)`` at or above ``threshold`` (PSNR in dB; fix it before looking), interval at ``alpha``."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"scores must be finite numbers (n,), at least one, got shape {values.shape}")
    n, successes = len(values), int((values >= threshold).sum())
    return SuccessRate(
        successes=successes,
        n=n,
        low=1 - float(upper_bound(n - successes, n, alpha / 2)),
        high=float(upper_bound(successes, n, alpha / 2)),
    )


def _scored(image: FloatArray, truth: FloatArray, mask: NDArray[np.bool_]) -> RegionScore:
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


def _means(
    errors: FloatArray, similarity: FloatArray, region: NDArray[np.bool_]
) -> tuple[float, float] | tuple[None, None]:
    if not region.any():
        return None, None
    return float(errors[:, region].mean()), float(similarity[:, region].mean())


def _similarity(image: FloatArray, truth: FloatArray) -> FloatArray:
    """SSIM of each pixel's window, ``(c, h, w)``."""
    from skimage.metrics import structural_similarity

    similarity: Callable[..., tuple[float, FloatArray]] = structural_similarity
    return similarity(truth, image, win_size=ssim_window(image), data_range=1.0, channel_axis=0, full=True)[1]
