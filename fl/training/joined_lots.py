"""The lots of several clients as one batch, in which each client in each replica (independent run) is a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .devices import moved
from .local import Lot


@dataclass(frozen=True, kw_only=True)
class JoinedLots:
    """The lots of B clients in R replicas, padded to one length L, client after client: ``B * R`` rows.

    ``images (B * R, L, c, h, w)``, ``labels (B * R, L)`` for a classifier, ``weights (B * R, L)`` in each lot's mean,
    zero on the padding, and ``dropout (B * R, L, features)`` or None.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    dropout: Tensor | None

    @classmethod
    def of(cls, pool: tuple[Tensor, Tensor], lots: Sequence[Lot], length: int, device: str) -> Self:
        """Join lots of the samples in ``pool`` (images and labels on ``device``), none of them empty, as rows of
        ``length`` samples.
        """
        # Padded by the client's own samples: an unusual sample of another client must not enter, even at weight zero.
        places = moved(torch.cat([_filled(lot.held.places[lot.chosen], length) for lot in lots]), device)
        weights = [torch.nn.functional.pad(own, (0, length - own.shape[1])) for own in (lot.weights for lot in lots)]
        masks = [_filled(lot.dropout, length) for lot in lots if lot.dropout is not None]
        return cls(
            images=pool[0][places],
            labels=pool[1][places],
            weights=moved(torch.cat(weights), device),
            dropout=moved(torch.cat(masks), device) if masks else None,
        )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.weights)

    def part(self, start: int, rows: int) -> Self:
        """Return ``rows`` of the rows, from ``start``; beyond the last one it is repeated."""
        places = torch.arange(start, start + rows, device=self.weights.device).clamp_max(self.rows - 1)
        dropout = None if self.dropout is None else self.dropout[places]
        given = {"images": self.images[places], "labels": self.labels[places], "weights": self.weights[places]}
        return type(self)(**given, dropout=dropout)


def _filled(values: Tensor, length: int) -> Tensor:
    """``values (R, L, ...)`` with the first sample's repeated behind the others, ``(R, length, ...)``."""
    lacking = length - values.shape[1]
    return torch.cat([values, values[:, :1].expand(-1, lacking, *values.shape[2:])], dim=1) if lacking else values
