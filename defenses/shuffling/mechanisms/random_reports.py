"""Send a random subset of a report's numbers; this is the baseline for S-APES's own selection (Liu et al. 2023, Figure
3b).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .top_reports import Selection, TopReportsLaw, choose, no_choice


@dataclass(frozen=True, kw_only=True)
class RandomReportsLaw(TopReportsLaw):
    """A distribution of a report of d numbers: noise is added to ``kept`` randomly drawn values, and to zeros in place
    of all others.

    The report does not show which. The density is the mean over all choices (an elementary symmetric polynomial). Given
    the choice it is ``kept`` releases, so two values differ by at most as much as these.
    """

    selection: ClassVar[Selection] = Selection.RANDOM

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Compute the log density of a report of d numbers, in time proportional to d."""
        seen = release.double() + torch.zeros_like(contribution.double())
        dummies, gains = self._gains(seen, contribution.double() + torch.zeros_like(seen))
        dim = seen.shape[-1]
        kept = self._kept(dim)
        polynomial = no_choice(seen, kept + 1)
        # The sum over all choices would have binomially many terms; the recursion needs d steps.
        for one in range(dim):
            polynomial = choose(polynomial, gains[..., one])
        return dummies.sum(-1) + polynomial[..., -1] - math.log(math.comb(dim, kept))

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return two vectors, one with all entries at the lower and one with all at the upper end of the range."""
        ends = torch.full((dim,), self.radius)
        return -ends, ends
