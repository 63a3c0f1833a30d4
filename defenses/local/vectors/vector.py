"""Randomise a client's whole vector by a mechanism that chooses the sent coordinates depending on the data."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....audit.arrays import BoolArray, FloatArray
from ....fl.laws import Mixing, clip_entries
from ...randomisers.randomiser import Randomiser

# Numbers that are sorted at once.
_NUMBERS = 2**22


@dataclass(frozen=True, kw_only=True)
class VectorLaw:
    """A distribution of a client's report by a randomiser of whole vectors of shape (d,); most entries of a report are
    zero.

    A subclass defines the randomiser, and how its reports are written into a row.

    Args:
        radius: L-infinity bound of an entry, or the size of one that is sent.
    """

    radius: float

    @property
    def mixing(self) -> Mixing:
        return Mixing.NONE

    def randomiser(self, dim: int) -> Randomiser:
        """Return the randomiser for client vectors of shape (dim,)."""
        raise NotImplementedError

    def values(self, rows: FloatArray) -> FloatArray:
        """Convert n clipped client vectors, array of shape (n, d), to inputs of the randomiser."""
        raise NotImplementedError

    def written(self, reports: NDArray[Any], dim: int) -> NDArray[np.float32]:
        """Convert the randomiser's reports from n clients to sparse vectors, array of shape (n, dim)."""
        raise NotImplementedError

    def read(self, rows: NDArray[np.float32]) -> tuple[NDArray[Any], BoolArray]:
        """Recover the randomiser's reports from client vectors of shape (n, d); also return, as booleans of shape (n,),
        which of the vectors hold a report.
        """
        raise NotImplementedError

    def contribution(self, rows: Tensor) -> Tensor:
        """Return client vectors ``(..., d)`` with every entry clipped to its range; NaN becomes zero."""
        return clip_entries(rows, self.radius)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw one report for each client vector; vectors need not be clipped."""
        dim = contribution.shape[-1]
        randomiser, rows = self.randomiser(dim), contribution.reshape(-1, dim)
        sent = torch.empty_like(rows)
        # A limited number of rows at a time, because their ranks are full matrices of doubles.
        size = max(1, _NUMBERS // dim)
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            values = self.values(self.contribution(rows[part]).double().numpy())
            sent[part] = torch.from_numpy(self.written(randomiser.sample(values, rng), dim)).to(rows)
        return sent.reshape(contribution.shape)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        dim = release.shape[-1]
        shape = np.broadcast_shapes(release.shape, contribution.shape)
        reports, possible = self.read(release.expand(shape).reshape(-1, dim).float().numpy())
        logs = np.full(len(reports), -np.inf)
        # The density takes one row at a time; the many replicas of an audit have only a few different rows.
        rows, which = torch.unique(contribution.reshape(-1, dim), dim=0, return_inverse=True)
        owners = which.reshape(contribution.shape[:-1]).expand(shape[:-1]).reshape(-1).numpy()
        for number, value in enumerate(self.values(rows.double().numpy())):
            mine = possible & (owners == number)
            logs[mine] = self.randomiser(dim).log_density(reports[mine], value)
        return torch.from_numpy(logs).reshape(shape[:-1])

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        raise ValueError(
            "the coordinates of a report are not independent: all entries of the input vector decide which are sent, "
            "so the log density of a report is not a sum over coordinates; call log_density for the whole report"
        )

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return the two client vectors that the randomiser's reports distinguish best."""
        absent, present = (torch.from_numpy(self.radius * row).float() for row in self.randomiser(dim).worst_pair())
        return absent, present
