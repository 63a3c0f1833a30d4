"""Find the rows at the ends of a local randomiser's range, where its reports differ most."""

import torch
from torch import Tensor

from ..audit.claim import Claim
from ..fl.laws.law import ReportLaw

FAR = 1e3
"""Entries outside of the range, in its halves."""


def range_ends(law: object, claim: Claim, dim: int, radius: float) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest row of the range, ``(dim,)`` each: those of the law, or else of the claim.

    Args:
        law: the published law, or None.
        radius: of each entry, where neither the law nor the claim's parameter ``radius`` states one.
    """
    if isinstance(law, ReportLaw):
        low, high = (row.float() for row in law.worst_pair(dim))
    else:
        stated = claim.parameters.get("radius", radius)
        high = torch.full((dim,), float(stated) if isinstance(stated, int | float) else 1.0)
        low = -high
    return (low, high) if bool((high != low).any()) else (low - 1, high + 1)


def in_turn(low: Tensor, high: Tensor) -> Tensor:
    """Return the row whose entries are those of ``high`` and of ``low`` in turn."""
    return torch.where(torch.arange(len(low)) % 2 == 0, high, low)
