"""Public rotations before the noise, and correlated noise with the sensitivity that fits it."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency, Claim, Unit
from ....audit.observer import AGGREGATE
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ..case import At, ReportCase


@lru_cache(maxsize=64)
def _mirrors(number: int, dim: int) -> Tensor:
    vectors = np.random.default_rng([5, number, dim]).standard_normal((3, dim))
    return torch.from_numpy(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).float()


def _reflected(rows: Tensor, mirrors: Tensor) -> Tensor:
    for mirror in mirrors:
        rows = rows - 2 * (rows @ mirror).unsqueeze(-1) * mirror
    return rows


class PublicRotation(ReportCase):
    """Updates are rotated by a public orthogonal map before clip and noise, and the server rotates the mean back."""

    published = False

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return super().clipped(_reflected(values.nan_to_num(), _mirrors(at.round, values.shape[-1])), at)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        mean = received.values.sum(1) / context.plan.expected_cohort
        return _reflected(mean, _mirrors(context.round, mean.shape[-1]).flip(0))


class CorrelatedCoordinates(ReportCase):
    """Noise z_j + z_{j-1} / 2 is correlated along the coordinates, and twice as large: its map shrinks by 2 at most."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        fresh = super().noise(updates, at)
        shifted = torch.nn.functional.pad(fresh[..., :-1], (1, 0))
        return 2 * (fresh + 0.5 * shifted)


class CancellingPairs(ReportCase):
    """Neighbours in a ring add and subtract a common vector, which cancels in the sum, besides their own noise."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        common = 3 * super().noise(updates, at)
        return super().noise(updates, at) + common - common.roll(1, dims=1)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        (uploads,) = super().claims_of(plan)
        sum_alone = cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, AGGREGATE, curve=uploads.curve)
        return (uploads, sum_alone)
