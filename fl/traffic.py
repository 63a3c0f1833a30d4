"""Counts the bytes that clients send and receive in a training, from the messages of each round.

What is counted is the payload: the numbers of a message, without transport overhead, compression, encryption or the
exchange of keys and shares before a secure sum. A client's report counts in the shortest of three plain encodings:

1. every number at the size of its data type (float32: 32 bits), or at its word size in a secure sum;
2. only the numbers other than zero, each with an index of 32 bits;
3. one bit per number and the two values that they take, if a report takes at most two values.

An encoder made for one defense may need less. Arrays that accompany a report count at the size of their data type, a
boolean as one bit. The broadcast counts the model and what the algorithm shares with it (SCAFFOLD's control variate),
once for each client of the round; public numbers of the defense, such as a clip norm, are not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .message import Message
from .recorder import RoundEvent

INDEX_BITS = 32
"""Size of the index of a number in a sparse report."""
_FIRST = 64
# A copy of the reports of ten thousand clients would take as much memory as the reports.
_NUMBERS = 2**22


@dataclass(kw_only=True)
class TrafficRecorder:
    """A recorder that adds up the bytes that clients send and receive, in the first of several independent runs.

    ``rounds`` counts the rounds so far; ``reports`` the clients' reports, of ``up`` bytes in total; ``receipts`` the
    broadcast models that clients received, of ``down`` bytes in total.
    """

    rounds: int = 0
    reports: int = 0
    receipts: int = 0
    up: int = 0
    down: int = 0
    needs_reports: ClassVar[bool] = False

    def watch_reports(self, reports: Message) -> None:
        """Count the bytes of all reports of a round, or of a block of them."""
        self.reports += int(reports.present[0].sum())
        self.up += int(report_bytes(reports).sum())

    def watch(self, event: RoundEvent) -> None:
        """Count a finished round and the bytes of its broadcast."""
        receivers = int(event.cohort[0].sum())
        self.rounds += 1
        self.receipts += receivers
        self.down += receivers * broadcast_bytes(event.broadcast, event.shared)


def report_bytes(reports: Message) -> Tensor:
    """Return the bytes that each client's report needs, int64 of shape ``(rows,)``, in the first replica; clients that
    are absent send nothing.
    """
    rows = reports.values[0]
    size, dim = reports.word_bits or _bits(rows), rows.shape[1]
    bits = torch.full((len(rows),), dim * size)
    # Masked words are uniform: a short encoding of them would be an accident.
    if not reports.masked:
        bits = torch.minimum(bits, rows.count_nonzero(-1) * (size + INDEX_BITS))
        bits = torch.where(_takes_two_values(rows), bits.clamp_max(dim + 2 * size), bits)
    for name, array in reports.side.items():
        if name not in reports.unsent:
            bits = bits + array[0, 0].numel() * _bits(array) if len(rows) else bits
    return ((bits + 7) // 8).masked_fill(~reports.present[0], 0)


def broadcast_bytes(model: Tensor, shared: Mapping[str, Tensor]) -> int:
    """Return the bytes that one client receives in a round: the model ``(R, d)`` and what the algorithm shares."""
    return sum(part[0].numel() * part.element_size() for part in (model, *shared.values()))


def _bits(array: Tensor) -> int:
    return 1 if array.dtype is torch.bool else 8 * array.element_size()


def _takes_two_values(rows: Tensor) -> Tensor:
    """Which rows ``(rows, d)`` hold at most two different numbers."""
    found = _two_valued(rows[:, :_FIRST])
    # The first numbers of most reports already differ, so that the rest need not be looked at.
    for part in torch.split(found.nonzero().flatten(), max(1, _NUMBERS // rows.shape[1])):
        found[part] = _two_valued(rows[part])
    return found


def _two_valued(rows: Tensor) -> Tensor:
    if not len(rows):
        return torch.zeros(0, dtype=torch.bool)
    low, high = rows.aminmax(dim=1, keepdim=True)
    return ((rows == low) | (rows == high)).all(1)
