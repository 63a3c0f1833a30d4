"""Send k of d coordinates, drawn independently of the data, each randomised (Wang et al. 2019, Algorithm 4)."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...fl.laws import Mixing
from .number import NumberReport, sendable, unrounded


@dataclass(frozen=True, kw_only=True)
class SampledLaw:
    """A distribution of a report that randomises k (``coordinates``) of the d entries of a client's vector, drawn
    uniformly and independently of the data. A drawn entry holds d / k times the randomised value, the others are zero
    (Wang et al. 2019, Algorithm 4).

    It is unbiased where the number's report is. Where d is smaller than k, all d are sent. The density is that of the
    reports given which entries were drawn: the draw is the same for all rows and cancels. A report that is zero is sent
    as 1.2e-38, so that a zero always means "not sent".

    Args:
        number: the report of one entry, in units of its radius.
        radius: L-infinity bound of an entry; NaN counts as zero.
        coordinates: k.
        mixing: how rows reach the observer.
    """

    number: NumberReport
    radius: float
    coordinates: int
    mixing: Mixing = Mixing.NONE

    def radii(self, dim: int) -> FloatArray:
        """Return the largest absolute value that each coordinate may have, array of shape (dim,)."""
        return np.full(dim, self.radius)

    def contribution(self, rows: Tensor) -> Tensor:
        """Return client vectors ``(..., d)`` with every entry clipped to its range."""
        bounds = torch.from_numpy(self.radii(rows.shape[-1])).to(rows)
        return torch.clamp(torch.nan_to_num(rows, nan=0.0), -bounds, bounds)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw one report for each client vector. Vectors need not be clipped, because the entries that are sent are
        clipped here.
        """
        dim = contribution.shape[-1]
        rows, scales = contribution.reshape(-1, dim), self._scales(dim)
        places = drawn_places(len(rows), dim, min(self.coordinates, dim), rng)
        entries = rows.gather(1, torch.from_numpy(places)).numpy()
        reports = self.number.sample(self._units(entries, self.radii(dim)[places]), rng)
        # Scaled by d / k, so that the mean over clients is unbiased.
        sent = torch.from_numpy(sendable(reports * scales[places])).to(rows)
        return torch.zeros_like(rows).scatter_(1, torch.from_numpy(places), sent).reshape(contribution.shape)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        reports, rows, sent = _aligned(release, contribution)
        owners, places = sent.reshape(-1, sent.shape[-1]).nonzero().unbind(1)
        # Only what was sent is evaluated: for few coordinates of many this is most of the saving.
        logs = self._logs(reports[sent].numpy(), rows[sent].numpy(), places.numpy(), sent.shape[-1])
        total = torch.zeros(sent.shape[:-1], dtype=torch.float64).flatten()
        total = total.index_add(0, owners, torch.from_numpy(logs)).reshape(sent.shape[:-1])
        return total.masked_fill(sent.sum(-1) != min(self.coordinates, sent.shape[-1]), -torch.inf)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        if self.coordinates < release.shape[-1]:
            raise ValueError(
                f"the coordinates of a report are not independent: only {self.coordinates} of {release.shape[-1]} "
                "are sent, so the log density of a report is not a sum over coordinates; call log_density for the "
                "whole report"
            )
        reports, rows, sent = _aligned(release, contribution)
        places = np.broadcast_to(np.arange(sent.shape[-1]), sent.shape)
        # Absent rows are evaluated with the others, which is faster than selecting the present ones.
        logs = self._logs(reports.numpy().ravel(), rows.numpy().ravel(), places.ravel(), sent.shape[-1])
        return torch.from_numpy(logs).reshape(sent.shape).masked_fill(~sent, -torch.inf)

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return two client vectors, without and with the canary. All entries of the first vector are at one of the two
        values that reports distinguish best, all entries of the second at the other.
        """
        radii = torch.from_numpy(self.radii(dim)).float()
        absent, present = self.number.worst_pair()
        return absent * radii, present * radii

    def _logs(
        self, sent: NDArray[np.floating], entries: NDArray[np.floating], places: NDArray[np.integer], dim: int
    ) -> FloatArray:
        """Log densities of numbers (m,) that were sent for ``entries`` at ``places`` of rows (dim,)."""
        seen = unrounded(self.number, sent, self._scales(dim)[places])
        return self.number.log_density(seen, self._units(entries, self.radii(dim)[places]))

    def _scales(self, dim: int) -> FloatArray:
        return np.asarray(self.radii(dim) * dim / min(self.coordinates, dim))

    @staticmethod
    def _units(entries: NDArray[np.floating], radii: FloatArray) -> FloatArray:
        """Entries in units of their radius, clipped in double, because a float32 bound may lie beyond the radius."""
        return np.clip(np.nan_to_num(entries.astype(np.float64), nan=0.0), -radii, radii) / radii


def _aligned(release: Tensor, contribution: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both in one shape, and a mask of where something was sent."""
    shape = np.broadcast_shapes(release.shape, contribution.shape)
    reports = release.expand(shape)
    return reports, contribution.expand(shape), reports != 0


def drawn_places(rows: int, dim: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw the positions of ``count`` different coordinates out of ``dim``, uniformly for each client; array of shape
    (clients, count) (Floyd's algorithm: Bentley 1987).
    """
    if count == dim:
        return np.tile(np.arange(dim), (rows, 1))
    places = np.full((rows, count), -1, dtype=np.int64)
    for column, last in enumerate(range(dim - count, dim)):
        place = rng.integers(last + 1, size=rows)
        # Floyd's algorithm needs one draw per place and never a rejection, so rows draw equally often.
        taken = (places[:, :column] == place[:, np.newaxis]).any(axis=1)
        places[:, column] = np.where(taken, last, place)
    return places
