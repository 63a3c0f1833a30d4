"""Random sparsification, which the paper of S-APES compares with its own (Liu et al. 2023, Figure 3b), and its law."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .top_reports import Selection, TopReportsLaw, choose, no_choice


@dataclass(frozen=True, kw_only=True)
class RandomReportsLaw(TopReportsLaw):
    """A whole report: ``kept`` of its d numbers, by chance, are of the value, the rest are reports of 0.

    Nothing says which: the density is the mean over all choices (an elementary symmetric polynomial). Given the choice
    it is ``kept`` releases, so that no two values differ by more than these.
    """

    selection: ClassVar[Selection] = Selection.RANDOM

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Takes d steps."""
        seen = release.double() + torch.zeros_like(contribution.double())
        dummies, gains = self._gains(seen, contribution.double() + torch.zeros_like(seen))
        dim = seen.shape[-1]
        kept = self._kept(dim)
        polynomial = no_choice(seen, kept + 1)
        for one in range(dim):
            polynomial = choose(polynomial, gains[..., one])
        return dummies.sum(-1) + polynomial[..., -1] - math.log(math.comb(dim, kept))

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """One end of the range against the other."""
        ends = torch.full((dim,), self.radius)
        return -ends, ends
