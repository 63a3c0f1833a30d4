"""Compute LPIPS, a learned perceptual distance between images (Zhang et al. 2018), with the ``lpips`` package."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...audit.arrays import FloatArray
from .images import LpipsScorer, checked_pair
from .lpips_weights import Unavailable, convolutions

_SIDE = 64


def lpips_scorer() -> LpipsScorer | Unavailable:
    """Load the LPIPS 0.1 metric on AlexNet (Zhang et al. 2018), or return why it is unavailable; random weights are
    never used.

    Images are scaled to [-1, 1], a grey one is repeated to three channels, and one under 64 pixels is upsampled to
    64x64 (bilinear), because AlexNet's strides leave nothing of smaller ones. The paper did not calibrate that: compare
    such values only with each other. The weights come from torch.hub's checkpoint folder; nothing is downloaded here.
    """
    # Read before lpips is imported, which takes 5 s: in vain where the weights are absent.
    weights = convolutions()
    if isinstance(weights, Unavailable):
        return weights
    distance = _network(weights)

    def score(images: ArrayLike, truth: ArrayLike) -> FloatArray:
        ours, wanted = (_for_alexnet(array) for array in checked_pair(images, truth))
        with torch.no_grad():
            return np.asarray(distance(ours, wanted).flatten().numpy(), dtype=np.float64)

    return score


def _network(weights: Mapping[str, Tensor]) -> Any:
    import lpips

    # The package would download AlexNet itself; instead it draws random weights, all of which are then replaced.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # lpips uses names that torchvision has deprecated.
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    slices = {name.partition(".")[2]: name for name in network.net.state_dict()}
    # Strict on both sides: a convolution that keeps its random weights would give wrong distances without a word.
    network.net.load_state_dict({slices[name]: tensor for name, tensor in weights.items()}, strict=True)
    return network


def _for_alexnet(images: FloatArray) -> Tensor:
    """``(n, 1 or 3, h, w)`` in [0, 1] -> ``(n, 3, >= 64, >= 64)`` in [-1, 1]."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"LPIPS needs images with 1 or 3 channels, got {images.shape[1]}")
    scaled = torch.from_numpy(images).float().mul(2).sub(1).expand(-1, 3, -1, -1)
    if min(images.shape[2:]) >= _SIDE:
        return scaled
    return torch.nn.functional.interpolate(scaled, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False)
