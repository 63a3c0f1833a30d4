"""The real bugs of this family: a secure sum masks too little, sends something in the clear, or adds little noise."""

from abc import ABC
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ...defense import Prepared
from ...secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from ...secure.masks import Masks, draw_masks
from ..case import Case, lengths_of


@dataclass(frozen=True, kw_only=True)
class _SecureCase(Case, DistributedGaussianProtection, ABC):
    """Claims one client (zero-out) against a server that sees masked words, their sum and who takes part."""

    def masks(self, invited: Tensor, survived: Tensor, dim: int, rng: np.random.Generator) -> Masks:
        return draw_masks(invited, survived, dim, self.sized.grid, rng)

    def shown(self, updates: Message, survived: Tensor) -> dict[str, Tensor]:
        """Return what travels with the masked words, besides the recovered masks."""
        return {}

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        survived = self._survivors(updates.present, rng)
        masks = self.masks(updates.present, survived, updates.values.shape[-1], rng)
        words = self.sized.grid.wrap(self.encoded(updates, rng) + masks.words)
        side = {"recovered": masks.recovered, **self.shown(updates, survived)}
        return replace(updates, present=survived, side=side, masked=True).with_values(words)

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        correct = DistributedGaussian(epsilon=cls.epsilon, delta=cls.delta).prepare(plan)
        fields = {**vars(correct.protection), "broken": broken}
        return Prepared(protection=cls(**fields), claims=correct.claims)


def _pairwise(
    invited: Tensor, survived: Tensor, dim: int, case: _SecureCase, rng: np.random.Generator, *, width: int, bare: int
) -> Masks:
    """Pair masks and own masks, uniform in ``[0, width)``; the client of row ``bare`` agrees on none."""
    replicas, rows = invited.shape
    grid, words = case.sized.grid, torch.zeros(*invited.shape, dim, dtype=torch.int64)
    recovered = torch.zeros_like(words)
    for row in range(rows):
        own = torch.from_numpy(rng.integers(0, width, (replicas, dim))) * (row != bare)
        words[:, row] += own
        recovered[:, row] += own
        for other in range(row + 1, rows):
            agreed = invited[:, row] & invited[:, other] & (bare not in (row, other))
            shared = torch.from_numpy(rng.integers(0, width, (replicas, dim))) * agreed.unsqueeze(-1)
            words[:, row] += shared
            words[:, other] -= shared
            # What survivors share with clients that dropped out stays in the sum unless it is recovered.
            recovered[:, row] += shared.masked_fill(survived[:, other, None], 0)
            recovered[:, other] -= shared.masked_fill(survived[:, row, None], 0)
    masks = (grid.wrap(words).masked_fill(~invited.unsqueeze(-1), 0), grid.wrap(recovered))
    return Masks(words=masks[0], recovered=masks[1].masked_fill(~survived.unsqueeze(-1), 0))


class SmallMasks(_SecureCase):
    """Masks are bytes while words have more bits, so that each word shows its upper bits."""

    def masks(self, invited: Tensor, survived: Tensor, dim: int, rng: np.random.Generator) -> Masks:
        width = 256 if self.broken else self.sized.grid.modulus
        return _pairwise(invited, survived, dim, self, rng, width=width, bare=-1)


class LastClientUnmasked(_SecureCase):
    """The loop over pairs leaves out the last client, which sends its word without a mask."""

    def masks(self, invited: Tensor, survived: Tensor, dim: int, rng: np.random.Generator) -> Masks:
        bare = invited.shape[1] - 1 if self.broken else -1
        return _pairwise(invited, survived, dim, self, rng, width=self.sized.grid.modulus, bare=bare)


class LengthBesideMask(_SecureCase):
    """The raw length travels in the clear beside the masked word, for a check of outliers."""

    def shown(self, updates: Message, survived: Tensor) -> dict[str, Tensor]:
        length = lengths_of(updates.values).squeeze(-1).nan_to_num() * self.broken
        return {"length": length.masked_fill(~survived, 0)}


class SharesSquared(_SecureCase):
    """A share of the noise has a deviation of sigma / n instead of sigma / sqrt(n)."""

    def shares_needed(self, invited: int) -> int:
        return invited**2 if self.broken else super().shares_needed(invited)
