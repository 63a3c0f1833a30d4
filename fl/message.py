"""Defines messages: the clients' vectors that one stage of a round passes to the next, for several independent runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Message:
    """The clients' vectors, one row per client, that one stage of a round passes to the next, such as to a shuffler.

    Raises ValueError where the shapes do not fit together.

    Args:
        values: (replicas, rows, d), floats or integers; absent rows hold zeros.
        present: (replicas, rows), true where the row was sent.
        senders: client number of each row, canaries last; ``None`` once a shuffler has hidden the senders.
        side: named arrays sent with the rows (budgets, indices, hash seeds), each ``(replicas, rows, ...)``.
        masked: whether the rows are masked words of a secure sum, which are independent of the data one by one.
        word_bits: bits of a number as a client sends it, where they are fewer than those of the data type of values.
        unsent: names of side arrays that the simulation hands on, but that no client sends with its row.
    """

    values: Tensor
    present: Tensor
    senders: tuple[int, ...] | None
    side: Mapping[str, Tensor] = field(default_factory=dict)
    masked: bool = False
    word_bits: int | None = None
    unsent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or self.present.shape != self.values.shape[:2]:
            raise ValueError(
                "values must have shape (replicas, rows, d) and present shape (replicas, rows), one row per client, "
                f"got shapes {tuple(self.values.shape)} and {tuple(self.present.shape)}"
            )
        # A mask of numbers would be used as indices instead of a mask.
        if self.present.dtype is not torch.bool:
            raise ValueError(f"present must hold booleans, got {self.present.dtype}")
        for name, array in self.side.items():
            if array.shape[:2] != self.present.shape:
                raise ValueError(
                    f"array {name}, sent with the reports, must have shape {(*self.present.shape, '...')}, "
                    f"got {tuple(array.shape)}"
                )
        if self.word_bits is not None and not 1 <= self.word_bits <= 64:
            raise ValueError(f"word_bits (size of a number that is sent) must be in 1..64, got {self.word_bits}")
        if self.senders is not None and len(self.senders) != self.values.shape[1]:
            raise ValueError(
                f"senders must name one client per row, got {len(self.senders)} for {self.values.shape[1]} rows"
            )

    def with_values(self, values: Tensor) -> "Message":
        """Return a message from the same clients with ``values`` as their vectors; the rows of absent clients stay
        zero.
        """
        return replace(self, values=only_present(values, self.present))

    def of_rows(self, rows: "list[int] | slice") -> "Message":
        """Return the message restricted to some rows."""
        return replace(
            self,
            values=self.values[:, rows],
            present=self.present[:, rows],
            senders=None if self.senders is None else tuple(np.array(self.senders)[rows].tolist()),
            side={name: array[:, rows] for name, array in self.side.items()},
        )


def clear_absent(values: Tensor, present: Tensor) -> Tensor:
    """Set the rows of ``values (R, n, d)`` that are not in ``present (R, n)`` to zero, in place, and return them."""
    return values if present.all() else values.masked_fill_(~present.unsqueeze(-1), 0)


def only_present(values: Tensor, present: Tensor) -> Tensor:
    """Return a copy of ``values (R, n, d)`` with zeros in the rows that are not in ``present (R, n)``."""
    # A plain copy takes a seventh of the time.
    if not present.is_meta and present.all():
        return values.expand(*present.shape, -1).clone(memory_format=torch.contiguous_format)
    # Not a product with the mask: zero times infinity is not zero.
    return values.masked_fill(~present.unsqueeze(-1), 0)
