"""Compute the similarity of a reconstructed and the original image, with pixels in [0, 1]."""

import hashlib
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ..config.compatibility import LEAST_SIDE

PSNR_CAP = 100.0
"""Decibels of a perfect reconstruction, because a record cannot hold infinity; reached at an MSE of 1e-10."""

ALEXNET = "alexnet-owt-7be5be79.pth"
"""torchvision's file of the ImageNet weights; the eight digits begin its SHA-256 sum."""

LpipsScorer = Callable[[ArrayLike, ArrayLike], FloatArray]
"""(images, truth), each ``(n, c, h, w)`` in [0, 1] -> ``(n,)``, lower is more similar."""

_LPIPS_SIDE = 64


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


@dataclass(frozen=True)
class Unavailable:
    """A score that cannot be measured on this machine, with the reason in one line."""

    reason: str


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


def lpips_scorer(*, download: bool = False) -> LpipsScorer | Unavailable:
    """Load the LPIPS 0.1 metric on AlexNet (Zhang et al. 2018), or return why it is unavailable; random weights are
    never used.

    Images are scaled to [-1, 1], a grey one is repeated to three channels, and one under 64 pixels is upsampled to
    64x64 (bilinear), because AlexNet's strides leave nothing of smaller ones. The paper did not calibrate that: compare
    such values only with each other. The weights come from torch.hub's checkpoint folder; ``download`` allows fetching
    them (233 MiB).
    """
    checkpoint = Path(torch.hub.get_dir()) / "checkpoints" / ALEXNET
    # Checked before the import: lpips takes 5 s to import, in vain where the weights are absent.
    if not checkpoint.is_file() and not download:
        # The reason names no path: it enters records, which must be equal on all machines.
        return Unavailable(
            f"no {ALEXNET} in torch.hub's checkpoint folder; lpips_scorer(download=True) fetches it (233 MiB)"
        )
    if checkpoint.is_file() and not _is_genuine(checkpoint):
        return Unavailable(f"the {ALEXNET} in torch.hub's checkpoint folder has another SHA-256 sum; delete it")
    try:
        distance = _load_lpips()
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        return Unavailable(f"AlexNet weights cannot be loaded: {type(error).__name__}: {_first_line(error)}")

    def score(images: ArrayLike, truth: ArrayLike) -> FloatArray:
        ours, wanted = (_for_alexnet(array) for array in checked_pair(images, truth))
        with torch.no_grad():
            return np.asarray(distance(ours, wanted).flatten().numpy(), dtype=np.float64)

    return score


def _load_lpips() -> Callable[[Tensor, Tensor], Tensor]:
    import lpips

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lpips uses names that torchvision has deprecated.
        network: Callable[[Tensor, Tensor], Tensor] = lpips.LPIPS(net="alex", verbose=False)
    return network


def _for_alexnet(images: FloatArray) -> Tensor:
    """``(n, 1 or 3, h, w)`` in [0, 1] -> ``(n, 3, >= 64, >= 64)`` in [-1, 1]."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"LPIPS needs grey or colour images, got {images.shape[1]} channels")
    scaled = torch.from_numpy(images).float().mul(2).sub(1).expand(-1, 3, -1, -1)
    if min(images.shape[2:]) >= _LPIPS_SIDE:
        return scaled
    size = (_LPIPS_SIDE, _LPIPS_SIDE)
    return torch.nn.functional.interpolate(scaled, size=size, mode="bilinear", align_corners=False)


def _is_genuine(checkpoint: Path) -> bool:
    with checkpoint.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest.startswith(checkpoint.stem.rpartition("-")[2])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


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
