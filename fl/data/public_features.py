"""Features of Fashion-MNIST that are computed from public data alone: directions of edges, and components of MNIST."""

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, normalize

from .dataset import Dataset

FEATURES = 32
_DIRECTIONS, _CELL, _PUBLIC = 8, 4, 20_000
# Images at once: their edges stay in the processor's cache.
_AT_ONCE = 500


def public_features(private: Dataset, public: Dataset) -> Dataset:
    """Turn each image of ``private`` into a row of 32 numbers of norm 1 by a map that no private image has changed.

    The map: the root of the mean strength of the edges in eight directions, and the mean brightness, of each cell of
    4x4 pixels; the 32 principal components of these numbers on the first 20,000 training images of ``public``, each
    divided by its deviation there; the row divided by its norm. As in Tramer and Boneh 2021 features are fixed before
    training, so that few weights have to be learned and protected; unlike there their components are learned, on
    public data.
    """
    seen = _edges(public.train_images[:_PUBLIC]).double()
    mean = seen.mean(0)
    spread, directions = torch.linalg.eigh(torch.cov((seen - mean).T))
    components = directions[:, -FEATURES:] / spread[-FEATURES:].sqrt()
    # The sign of an eigenvector is the library's choice.
    components *= torch.sign(components.gather(0, components.abs().argmax(0, keepdim=True)))

    def rows(images: Tensor) -> Tensor:
        return normalize((_edges(images).double() - mean) @ components, dim=1).float()[:, None, None, :]

    train, test = rows(private.train_images), rows(private.test_images)
    name = private.name.removesuffix("_mnist")
    parts = (train, private.train_labels), (test, private.test_labels)
    return Dataset.of_parts(f"{name}_features", *parts, classes=private.classes, rows=True)


def _edges(images: Tensor) -> Tensor:
    """The strengths of edges and the brightness of each cell, ``(n, 9 * cells)``."""
    slope = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    turns = [2 * math.pi * turn / _DIRECTIONS for turn in range(_DIRECTIONS)]
    filters = torch.stack([math.cos(turn) * slope + math.sin(turn) * slope.T for turn in turns]).unsqueeze(1)
    found = []
    for part in torch.split(images, _AT_ONCE):
        strength = avg_pool2d(conv2d(part, filters, padding=1).clamp_min_(0), _CELL)
        found.append(torch.cat([strength.sqrt().flatten(1), avg_pool2d(part, _CELL).flatten(1)], dim=1))
    return torch.cat(found)
