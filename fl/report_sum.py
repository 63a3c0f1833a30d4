"""The sum of the reports of many clients, block by block, where a defense's aggregate needs nothing else of them.

A matrix of all reports of a thousand clients takes 4 GB for a model of a million parameters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .message import Message
from .protection import Context, Protection

NUMBERS = 2**24
"""Numbers of the reports of one block: 64 MiB. Cohorts whose reports hold no more stay one matrix."""
_HOOKS = ("local_query", "report", "channel", "aggregate", "query")


def sums_reports(protection: Protection) -> bool:
    """Return whether a protection's reports may be summed block by block: it states ``sums``, and no class below the
    one that states it overrides a hook that gets the reports.
    """
    kinds = type(protection).__mro__
    stated = next(place for place, kind in enumerate(kinds) if "sums" in vars(kind))
    overridden = any(hook in vars(kind) for kind in kinds[:stated] for hook in _HOOKS)
    return protection.sums is not None and not overridden


def blocks(senders: tuple[int, ...], dim: int) -> Iterator[slice]:
    """Yield the rows of each block of a cohort."""
    rows = max(1, NUMBERS // dim)
    return (slice(start, start + rows) for start in range(0, len(senders), rows))


@dataclass(kw_only=True)
class ReportSum:
    """A running sum of reports of one run, each times its client's weight.

    ``total (1, d)`` and ``weight``, the sum of the weights of the clients that sent a report. The sum is in double
    precision and takes one report after the other, so that it does not depend on the size of the blocks.
    """

    total: Tensor
    weight: float = 0.0

    def add(self, reports: Message, weights: Iterable[float]) -> None:
        """Add a block of reports whose clients have these weights."""
        rows, present = reports.values[0], reports.present[0].tolist()
        for row, sent, weight in zip(rows, present, weights, strict=True):
            if sent:
                self.total[0].add_(row.double(), alpha=weight)
                self.weight += weight

    def message(self, protection: Protection) -> Message:
        """Return what ``aggregate`` gets in place of the reports: one row without a sender, their sum or their mean."""
        whole = self.total / max(self.weight, 1e-12) if protection.sums == "mean" else self.total
        return Message(values=whole.float().unsqueeze(1), present=torch.ones(1, 1, dtype=torch.bool), senders=None)


def weights_of(protection: Protection, context: Context) -> list[float]:
    """Return the weight of each report of a block in its sum: the clients' sizes for a mean, else 1."""
    if protection.sums == "mean":
        return [context.plan.weight(client) for client in context.senders]
    return [1.0] * len(context.senders)
