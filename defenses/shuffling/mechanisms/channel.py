"""Hide the senders of whole reports, or of each coordinate separately, by shuffling (Bittau et al. 2017)."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ....fl.message import Message
from ....fl.streams import uniform

_CHUNK = 1 << 21


def shuffle_coordinates(reports: Message, rng: np.random.Generator) -> Message:
    """Shuffle each coordinate separately among the reports of clients that take part. Each array of side information,
    such as the clients' budgets, is shuffled by a permutation of its own.

    Absent rows come last, because their places would reveal who was present. The result is the multiset of every
    coordinate, without any link between the numbers of one client.
    """
    count = reports.present.sum(1)
    arrived = _first(count, reports.present.shape[1])
    values = torch.zeros_like(reports.values)
    # A full cohort needs no selection of rows in each replica.
    if bool(reports.present.all()):
        _permute_columns(reports.values, values, rng)
    else:
        for replica, there in enumerate(reports.present):
            rows = reports.values[replica : replica + 1, there]
            _permute_columns(rows, values[replica : replica + 1, : rows.shape[1]], rng)
    side = {name: _permuted_rows(array, reports.present, rng) for name, array in reports.side.items()}
    return replace(reports, values=values, present=arrived, senders=None, side=side)


def shuffle_rows(reports: Message, rng: np.random.Generator) -> Message:
    """Shuffle whole reports; reports of clients that take no part come last."""
    # Side arrays would have to be permuted together with the rows, and might identify them.
    if reports.side:
        raise ValueError(f"a shuffler of whole reports must not forward side information, got {sorted(reports.side)}")
    values = _permuted_rows(reports.values, reports.present, rng)
    arrived = _first(reports.present.sum(1), reports.present.shape[1])
    return replace(reports, values=values, present=arrived, senders=None)


def _first(count: Tensor, rows: int) -> Tensor:
    return torch.arange(rows).expand(len(count), rows) < count.unsqueeze(1)


def _permute_columns(rows: Tensor, out: Tensor, rng: np.random.Generator) -> None:
    """In blocks of columns, so that ten thousand clients' reports need no second copy."""
    width = max(1, _CHUNK // max(1, rows.shape[0] * rows.shape[1]))
    for start in range(0, rows.shape[2], width):
        block = np.ascontiguousarray(rows[:, :, start : start + width].numpy().transpose(0, 2, 1))
        shuffled = rng.permuted(block, axis=2, out=block)
        out[:, :, start : start + width] = torch.from_numpy(shuffled.transpose(0, 2, 1))


def _permuted_rows(array: Tensor, present: Tensor, rng: np.random.Generator) -> Tensor:
    """The present rows in a random order, then the others, which are zeros."""
    order = uniform(rng, tuple(present.shape), dtype=torch.float64).masked_fill(~present, 2.0).argsort(dim=1)
    return array[torch.arange(len(array)).unsqueeze(1), order]
