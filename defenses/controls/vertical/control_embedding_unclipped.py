"""This broken noise on embeddings comes without a clip.

The real bug: embeddings are believed to be of the order of the clip norm, and the clip is left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.vertical.protection import VerticalProtection
from ...vertical.columns.embedding_gaussian import EmbeddingGaussian
from ...vertical.columns.protection import NoisedEmbeddingProtection
from ...vertical.noise import drawn
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class UnclippedProtection(NoisedEmbeddingProtection):
    """A broken protection that adds noise to embeddings of any length."""

    def noised(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        return values + drawn(self.noise, self.scale, tuple(values.shape), rng)


@dataclass(frozen=True, kw_only=True)
class ControlEmbeddingUnclipped(VerticalControl, EmbeddingGaussian):
    """A deliberately broken defense (control) that states the claim of clipped embeddings with noise, which an audit
    with long rows must refute.
    """

    broken: ClassVar[type[VerticalProtection] | None] = UnclippedProtection
