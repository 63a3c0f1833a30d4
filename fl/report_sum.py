"""The sum of the reports of many clients, block by block, where a defense's aggregate needs nothing else of them.

A matrix of all reports of a thousand clients takes 4 GB for a model of a million parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .hooks import overrides
from .message import Message
from .protection import BlockSum, Context, Protection, State

NUMBERS = 2**24
"""Cohorts whose reports hold no more numbers, 64 MiB, stay one matrix."""
# Numbers of the reports of one block. Larger ones are returned to the system after each block, and asked for anew.
_BLOCK = 2**21
_IN_BLOCKS = ("local_query", "report", "channel")
"""The hooks for which ``block_sum`` stands."""
_SAME = {
    *("initial_state", "open_round", "participates", "local_step", "sample_weights", "noised_sum"),
    *("broadcast", "close_round", "numbers", "law"),
}
"""The hooks that are called alike for blocks and for one matrix."""
_KNOWN = ("mean", "unweighted mean", "sum", None)


def check_sums(protection: Protection) -> None:
    """Raise ValueError where ``sums`` of a protection is none of ``Sums``."""
    if protection.sums not in _KNOWN:
        raise ValueError(f"{type(protection).__name__}.sums must be one of {_KNOWN}, got {protection.sums!r}")


def sums_reports(protection: Protection) -> bool:
    """Return whether a protection's reports may be summed block by block: it states ``sums``, and no class below the
    one that states it, or ``block_sum``, nor the object overrides a method that may make a difference between blocks
    and one matrix.

    That is any method, also one that hooks call, but the hooks that are called alike for both. ``block_sum`` stands for
    ``local_query``, ``report`` and ``channel``: a class below it that overrides one of these would have to define it
    anew.
    """
    below = _overridden(protection, "sums", "block_sum")
    if overrides(protection, "block_sum"):
        below |= _overridden(protection, "block_sum").intersection(_IN_BLOCKS)
    return protection.sums is not None and below <= _SAME


def _overridden(protection: Protection, *stated: str) -> set[str]:
    """The names of the methods that are overridden below the last class that states one of the names ``stated``, or on
    the object.
    """
    owners = (protection, *type(protection).__mro__)
    place = next(place for place, owner in enumerate(owners) if not vars(owner).keys().isdisjoint(stated))
    known = {name for owner in owners[place:] for name in vars(owner) if not name.startswith("__")}
    return {name for owner in owners[:place] for name in known & vars(owner).keys() if callable(getattr(owner, name))}


def blocks(senders: tuple[int, ...], dim: int) -> Iterator[slice]:
    """Yield the rows of each block of a cohort."""
    rows = max(1, _BLOCK // dim)
    return (slice(start, start + rows) for start in range(0, len(senders), rows))


def block_sum(
    protection: Protection, present: Tensor, context: Context, state: State, rng: np.random.Generator
) -> BlockSum:
    """Begin the sum of the reports of a cohort ``present (1, rows)`` of one run; ``rng`` is the generator of the hook
    ``report``.
    """
    own = protection.block_sum(present, context, state, rng)
    if own is not None:
        return own
    total = torch.zeros(1, context.plan.layout.dim, dtype=torch.float64)
    return ReportSum(protection=protection, state=state, rng=rng, total=total)


@dataclass(kw_only=True)
class ReportSum:
    """A running sum of reports of one run, each times its client's weight.

    ``total (1, d)`` and ``weight``, the sum of the weights of the clients that sent a report; ``side``, what was sent
    with each block of reports. The sum is in double precision and takes one report after the other, so that it does not
    depend on the size of the blocks.
    """

    protection: Protection
    state: State
    rng: np.random.Generator
    total: Tensor
    weight: float = 0.0
    side: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, updates: Message, context: Context) -> Message:
        """Add the reports of a block of clients, and return them."""
        reports = self.protection.report(updates, context, self.state, self.rng)
        rows, present = reports.values[0], reports.present[0]
        for row, sent, weight in zip(rows, present.tolist(), self._weights(context), strict=True):
            if sent:
                self.total[0].add_(row, alpha=weight)
                self.weight += weight
        for name, array in reports.side.items():
            self.side.setdefault(name, []).append(array[:, present])
        return reports

    def received(self) -> Message:
        """Return one row without a sender: the sum or the mean of the reports, with the arrays of all of them."""
        whole = self.total if self.protection.sums == "sum" else self.total / max(self.weight, 1e-12)
        side = {name: torch.cat(arrays, dim=1).unsqueeze(1) for name, arrays in self.side.items()}
        present = torch.full((1, 1), self.weight > 0)
        return Message(values=whole.float().unsqueeze(1), present=present, senders=None, side=side)

    def _weights(self, context: Context) -> list[float]:
        """The clients' sizes for a mean weighted by them, else 1."""
        if self.protection.sums == "mean":
            return [context.plan.weight(client) for client in context.senders]
        return [1.0] * len(context.senders)
