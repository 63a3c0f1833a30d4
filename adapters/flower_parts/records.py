"""Reads and writes the arrays of Flower's messages as vectors."""

import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from ...fl.layout import Layout


def only_arrays(content: Any) -> tuple[str, Any]:
    """Return name and record of the only array record; TypeError where there are several."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise TypeError(f"messages of training must hold one ArrayRecord, got {len(records)}")
    return str(records[0][0]), records[0][1]


def is_training(message: Any) -> bool:
    """Whether a message asks for training."""
    return str(message.metadata.message_type).partition(".")[0] == "train"


def flat(record: Any) -> Tensor:
    """Return the arrays of a record as one vector ``(d,)`` of double precision; a copy."""
    parts = [torch.from_numpy(np.array(one, dtype=np.float64)).reshape(-1) for one in record.to_numpy_ndarrays()]
    return torch.cat(parts)


def layout_of(record: Any) -> Layout:
    """Return names and shapes of the arrays of a record."""
    arrays = record.to_numpy_ndarrays()
    return Layout(names=tuple(str(name) for name in record), shapes=tuple(tuple(one.shape) for one in arrays))


def largest_number(record: Any) -> float:
    """Return the largest number that every array of floating-point numbers of a record holds; infinite without any."""
    types = {one.dtype for one in record.to_numpy_ndarrays() if one.dtype.kind == "f"}
    return min((float(np.finfo(one).max) for one in types), default=math.inf)


def arrays_like(record: Any, arrays: list[Any]) -> Any:
    """Return a record of these arrays, ``[(shape)]``, under the names of another one."""
    return ArrayRecord({name: Array(array) for name, array in zip(record.keys(), arrays, strict=True)})


def added(record: Any, vector: Tensor, *, arrays: list[Any] | None = None) -> Any:
    """Return a record whose arrays are those of ``record`` plus the parts of ``vector (d,)``, in their own precision.

    ``arrays``: those of ``record``, where they are at hand.
    """
    held: list[Any] = record.to_numpy_ndarrays() if arrays is None else arrays
    parts = []
    for array, part in zip(held, torch.split(vector, [one.size for one in held]), strict=True):
        parts.append(np.asarray(array + part.numpy().reshape(array.shape)).astype(array.dtype))
    return arrays_like(record, parts)
