"""The real bugs of this family: samples or clients are not drawn as the accountant assumes."""

from abc import ABC
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....fl.laws.law import clipped_sum
from ....fl.protection import Context, State
from ..case import At, ClientCase, SampleCase, lengths_of


class _ThinnedLots(SampleCase, ABC):
    """Half of each lot is drawn again."""

    thinning: ClassVar[float] = 0.5
    published = False

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return present & (at.uniform(*present.shape) < 0.5)

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return 2 * clipped_sum(gradients, self.chosen(gradients, present, at), self.clip_norm)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return 2 * super().noise(like, at)


class EveryOther(_ThinnedLots):
    """Rounds use the even and the odd places of the lot in turn, instead of a coin per sample."""

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        places = torch.arange(present.shape[1])
        turn = places % 2 == (at.round + len(places) + 1) % 2
        return present & turn if self.broken else super().chosen(gradients, present, at)


class BiasedCoin(_ThinnedLots):
    """Samples with long gradients are kept with probability .95, short ones with .1; the accountant assumes .5."""

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        lengths = lengths_of(gradients).squeeze(-1).nan_to_num(posinf=1e30)
        rate = torch.where(lengths > self.clip_norm, 0.95, 0.1) if self.broken else torch.full_like(lengths, 0.5)
        return present & (at.uniform(*present.shape) < rate)


class _ThinnedCohorts(ClientCase, ABC):
    """A fair coin per client decides again who takes part."""

    thinning: ClassVar[float] = 0.5

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        at = At(context=context, state=state, rng=rng)
        coins = at.uniform(context.replicas, len(context.senders)) < 0.5
        return self.drawn(coins, at) if self.broken else coins

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        return coins


class FixedCohort(_ThinnedCohorts):
    """The cohort is drawn once and stays for all rounds."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        if at.round == 0:
            self.memory["cohort"] = coins
        return self.remembered("cohort", coins)


class Turns(_ThinnedCohorts):
    """Clients take part in turns, in a public order, instead of by coins."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        even = (torch.tensor(at.context.senders, dtype=torch.int64) + at.round) % 2 == 0
        return even.expand_as(coins).clone()


class OneCoinForAll(_ThinnedCohorts):
    """One coin decides for all clients together, and an empty round shows it."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        return coins[:, :1].expand_as(coins).clone()
