"""This broken noise on embeddings is drawn once per batch, and added to the embeddings of all its people.

The real bug: noise of the shape of one row is broadcast over the batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.vertical.protection import VerticalProtection
from ...vertical.columns.embedding_gaussian import EmbeddingGaussian
from ...vertical.columns.protection import NoisedEmbeddingProtection
from ...vertical.noise import clipped, drawn
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class SharedEmbeddingNoiseProtection(NoisedEmbeddingProtection):
    """A broken protection whose noise is equal for all people of a batch."""

    def noised(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        noise = drawn(self.noise, self.scale, (len(values), 1, values.shape[2]), rng)
        return clipped(values, self.clip_norm, self.noise) + noise


@dataclass(frozen=True, kw_only=True)
class ControlEmbeddingNoiseShared(VerticalControl, EmbeddingGaussian):
    """A deliberately broken defense (control) that states the claim of clipped embeddings with noise, which an audit
    must refute: the difference of two people's embeddings has no noise.
    """

    broken: ClassVar[type[VerticalProtection] | None] = SharedEmbeddingNoiseProtection
