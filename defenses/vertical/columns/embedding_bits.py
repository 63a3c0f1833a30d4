"""Passive parties send the signs of embeddings, each by binary randomised response (Warner 1965)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.vertical.protection import Noised, VerticalContext, VerticalLaw, VerticalPlan, VerticalProtection
from ..defense import PureVerticalDefense, VerticalPrepared, response_channel, through
from .protection import check_frozen, embedding_releases


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingBitsProtection(VerticalProtection):
    """A protection in which passive parties send the sign, +1 or -1, of each number of an embedding by randomised
    response; 0 counts as +1, and NaN counts as -1.

    Args:
        channel: (2, 2), the probability that a sign, minus or plus (row), is sent as another (column).
    """

    channel: Tensor
    sends_once: bool = False

    def embeddings(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return self.signs(values, rng)

    def evaluated(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        return self.signs(values, rng)

    def signs(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        """Return randomised signs of ``values (R, n, d)``."""
        sent = through(self.channel, (values >= 0).to(torch.int64), rng)
        return (2 * sent - 1).to(values.dtype)


@dataclass(frozen=True, kw_only=True)
class EmbeddingBits(PureVerticalDefense):
    """A defense of the passive parties' columns: each number of an embedding is sent as one bit, its sign, flipped with
    probability 1 / (1 + e^eps') where eps' is the part of the budget that one bit gets.

    The claim: one person's columns at one passive party, replaced by any others, over the whole training, against the
    active party. Other columns may flip all signs of an embedding, so the bits of all numbers and of all releases share
    the budget. A person's embedding is sent once per epoch, or once.

    For a prediction, the embedding of a new person is sent in the same way. It is a release of its own about that
    person; the claim is about the training alone.

    Args:
        epsilon, delta: the budget of the whole training.
        sends_once: whether an embedding is sent in the first epoch alone.

    Raises (in prepare):
        ValueError: for trained bottom models, which would show one person's columns in the embeddings of all others.
    """

    sends_once: bool = False

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        check_frozen(plan)
        releases, bits = embedding_releases(plan, sends_once=self.sends_once), plan.network.embedding
        each = self.each_of(bits * releases)
        channel = response_channel(each, 2)
        return self.stated(
            plan,
            EmbeddingBitsProtection(channel=channel, sends_once=self.sends_once),
            VerticalLaw(noised=Noised.EMBEDDINGS, channel=channel, releases=releases),
            mechanism="randomised response on the signs of embeddings",
            parameters={"bits": bits, "bit_epsilon": each, "releases": releases},
            accountant=self.accountant,
            source="Warner 1965; Kairouz et al. 2016, equation 3",
            each=each,
            releases=bits,
            once=self.sends_once,
        )
