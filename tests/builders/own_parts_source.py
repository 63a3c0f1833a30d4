"""The source of a module with one part from outside of each kind that a federation's table names."""

OWN_PARTS = '''\
"""Parts of a user, one of each kind."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedassay.fl.algorithms import FedSGD
from fedassay.fl.canary import Canary
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import IID
from fedassay.fl.sampling import Sampling


def rows(count=120, classes=3):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((count + 30, 1, 4, 4), dtype=np.float32))
    labels = torch.arange(count + 30) % classes
    return Dataset(
        name="rows",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        classes=classes,
    )


ROWS = rows()


def small(shape, classes, *, width=5):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.LayerNorm(width), nn.Linear(width, classes))


@dataclass(frozen=True, kw_only=True)
class Halves(IID):
    share: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Slow(FedSGD):
    pass


@dataclass(frozen=True)
class EveryOther(Sampling):
    odd: bool = False

    def draw(self, rng, replicas, n, turn=0):
        return (torch.arange(n) % 2 == int(self.odd)).expand(replicas, n)

    def rate(self, n):
        return 0.5


def long_row(inputs, *, factor=1.0):
    row = torch.zeros(inputs.plan.layout.dim)
    row[0] = factor * inputs.length
    return Canary(unit=inputs.unit, present=row)
'''
