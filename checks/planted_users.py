"""Users of several shapes, which the replays plant.

A defense must bound what all samples of a user contribute together, however many there are, at whichever clients, in
whichever order among the samples of others, and in whichever directions.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..fl.canary import UserCanary
from ..fl.streams import Streams, normal

_COPIES, _MANY = 4, 16
"""Samples of most shapes at each client: a clip of each sample lets all of them pass; and of the largest one."""
_STEP, _MOST = 3, 8
"""By how much the numbers of samples of the clients of one user differ, and the bound below which they stay."""


def user_shapes(row: Tensor, holders: Sequence[int], seed: int) -> Iterator[tuple[str, UserCanary]]:
    """Yield users of different shapes at the given clients, with words.

    Args:
        row: (d,), the gradient of each sample; of its length where the samples have different directions.
    """
    where = _words(holders)

    def equal(numbers: Sequence[int], apart: bool = False) -> UserCanary:
        return _user({client: row.expand(n, -1) for client, n in zip(holders, numbers, strict=True)}, apart)

    alike = [_COPIES] * len(holders)
    yield f"{_COPIES} equal samples at {where}", equal(alike)
    yield f"one sample at {where}", equal([1] * len(holders))
    yield f"{_COPIES} samples that lie apart among others' samples at {where}", equal(alike, apart=True)
    if len(holders) > 1:
        unequal = [1 + _STEP * turn % _MOST for turn in range(len(holders))]
        yield f"unequal numbers of samples, {min(unequal)} to {max(unequal)}, at {where}", equal(unequal)
        first = holders[0]
        yield f"one sample at client {first} alone", _user({first: row.unsqueeze(0)})
    drawn = normal(Streams(seed).generator("user directions"), (_COPIES, len(row)))
    drawn *= torch.linalg.vector_norm(row) / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)
    yield f"{_COPIES} samples of different directions at {where}", _user(dict.fromkeys(holders, drawn), apart=True)


def against_others(row: Tensor, holders: Sequence[int]) -> Iterator[tuple[str, UserCanary]]:
    """Yield users with a few and with many equal samples: what a sum is divided by may depend on their number."""
    for number in (_COPIES, _MANY):
        rows = row.expand(number, -1)
        yield f"{number} samples at {_words(holders)}", _user(dict.fromkeys(holders, rows))


def _user(held: dict[int, Tensor], apart: bool = False) -> UserCanary:
    rows = tuple(sorted(held.items()))
    return UserCanary(present=rows[0][1][0], held=rows, apart=apart)


def _words(holders: Sequence[int]) -> str:
    return f"client {holders[0]}" if len(holders) == 1 else f"each of {len(holders)} clients"
