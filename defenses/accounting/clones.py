"""Amplification by shuffling: one client's report hides among clones of it (Feldman, McMillan, Talwar 2021)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from ...fl.fields import check_positive
from ..defense import check_whole
from .counts import CountLaw, CountPair, binomial, bit_among, least_epsilon


@dataclass(frozen=True, eq=False, kw_only=True)
class ClonePair:
    """What the analyser sees at worst of a client's report among its clones.

    C ``clones`` are copies of either of the client's two reports by a fair coin; the client's own is told apart at
    ``epsilon0``. With A ~ Bin(C, 1/2) and D ~ Bern(e^eps0 / (1 + e^eps0)), the analyser sees (A + D, C + 1 - A - D) or
    its mirror image: both directions leak the same.

    ``restricted_class``: the value holds for some randomisers only (those of Feldman, McMillan, Talwar 2023, as
    corrected by its erratum); it must not certify any other.
    """

    epsilon0: float
    clones: CountLaw

    @property
    def pure_epsilon(self) -> float:
        """The local budget: a shuffler takes nothing away."""
        return self.epsilon0

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at ``epsilon`` >= 0, exact to double precision."""
        truth, lie, ratio = float(expit(self.epsilon0)), float(expit(-self.epsilon0)), math.exp(epsilon)
        gain, cost = truth - ratio * lie, ratio * truth - lie
        if gain <= 0:
            return self.clones.lost
        copies = self.clones.values
        # The likelihood ratio grows with the ones: from this many on it is above e^epsilon.
        least = np.floor((copies + 1) * cost / (gain + cost)) + 1
        own_one, own_zero = binom.sf(least - 2, copies, 0.5), binom.sf(least - 1, copies, 0.5)
        return float(self.clones.pmf @ np.maximum(gain * own_one - cost * own_zero, 0)) + self.clones.lost

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta`` in (0, 1), rounded up by at most 1e-9; never above ``epsilon0``."""
        return min(self.epsilon0, least_epsilon(self.delta, delta, surely=self.clones.lost))


def shuffled(*, clients: int, epsilon0: float) -> ClonePair:
    """``clients`` >= 1 reports, each ``epsilon0``-LDP, whatever the randomisers, shuffled.

    Every other client's report is a clone with probability e^-eps0 (Feldman, McMillan, Talwar 2021, Section 3, its
    pair evaluated exactly). One client; replace-one; the analyser behind the shuffler.
    """
    _check(clients, epsilon0)
    return ClonePair(epsilon0=epsilon0, clones=binomial(clients - 1, math.exp(-epsilon0)))


def shuffled_bits(*, clients: int, epsilon0: float) -> CountPair:
    """Binary randomised response of ``clients``, one holding 1 or 0, the others 0, shuffled: exact.

    No bound for every randomiser can lie below its epsilon.
    """
    _check(clients, epsilon0)
    return bit_among(binomial(clients - 1, float(expit(-epsilon0))), epsilon=epsilon0)


def _check(clients: int, epsilon0: float) -> None:
    check_positive("epsilon0", epsilon0)
    check_whole("clients", clients)
