"""Bound a client's privacy if its report is shuffled among other clients' reports (Feldman et al. 2021)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, expit

from ...audit.arrays import FloatArray
from ...fl.fields import check_positive
from ..defense import check_whole
from .counts import CountLaw, CountPair, binomial, bit_among, least_epsilon


@dataclass(frozen=True, eq=False, kw_only=True)
class ClonePair:
    """The two worst-case distributions of shuffled reports, one for each of two values of one client. The client's
    report hides among its clones: reports of other clients that can be treated as if this client's own mechanism had
    drawn them.

    Each of C ``clones`` copies one of the client's two possible reports, chosen by a fair coin; the client's own report
    differs by ``epsilon0``. With A ~ Bin(C, 1/2) and D ~ Bern(e^eps0 / (1 + e^eps0)), the analyser sees (A + D, C + 1 -
    A - D) or its mirror image, so both directions leak the same.
    """

    epsilon0: float
    clones: CountLaw

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which equals the local epsilon because a shuffler does not reduce it."""
        return self.epsilon0

    def delta(self, epsilon: float) -> float:
        """Compute delta at ``epsilon`` >= 0: the hockey-stick divergence between the pair's two distributions, exact to
        double precision.
        """
        truth, lie, ratio = float(expit(self.epsilon0)), float(expit(-self.epsilon0)), math.exp(epsilon)
        gain, cost = truth - ratio * lie, ratio * truth - lie
        # From epsilon0 on no outcome exceeds the ratio; only the mass outside of the window counts.
        if gain <= 0:
            return self.clones.lost
        copies = self.clones.values
        # The likelihood ratio grows with the number of ones: from this number on it exceeds e^epsilon.
        least = np.floor((copies + 1) * cost / (gain + cost)) + 1
        # Survival functions and not sums of probabilities: exact tails without enumeration.
        own_one, own_zero = _heads_from(least - 1, copies), _heads_from(least, copies)
        return float(self.clones.pmf @ np.maximum(gain * own_one - cost * own_zero, 0)) + self.clones.lost

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta`` in (0, 1), rounded up by at most 1e-9; it never exceeds the local
        epsilon.
        """
        return min(self.epsilon0, least_epsilon(self.delta, delta, surely=self.clones.lost))


def shuffled(*, clients: int, epsilon0: float) -> ClonePair:
    """Return the worst-case pair of distributions of ``clients`` >= 1 shuffled reports, one distribution for each of
    two values of one client; the pair is valid for any ``epsilon0``-LDP randomiser.

    Every other client's report is a clone with probability e^-eps0 (Feldman, McMillan, Talwar 2021, Section 3, with its
    pair evaluated exactly). The unit is one client, under replace-one; the adversary is the analyser behind the
    shuffler.
    """
    _check(clients, epsilon0)
    return ClonePair(epsilon0=epsilon0, clones=binomial(clients - 1, math.exp(-epsilon0)))


def shuffled_bits(*, clients: int, epsilon0: float) -> CountPair:
    """Return the exact pair of distributions for shuffled binary randomised response by ``clients`` clients: one client
    holds the bit 1 or the bit 0, and all others hold 0.

    No bound for all randomisers can lie below its epsilon.
    """
    _check(clients, epsilon0)
    return bit_among(binomial(clients - 1, float(expit(-epsilon0))), epsilon=epsilon0)


def _heads_from(least: FloatArray, coins: FloatArray) -> FloatArray:
    """The probability of at least ``least`` heads among fair coins, ``(k,)``; it equals scipy's ``binom.sf(least - 1,
    coins, 0.5)``, whose checks of arguments take as long again, thousands of times per calibration.
    """
    within = betainc(np.maximum(least, 0.5), np.maximum(coins - least + 1, 0.5), 0.5)
    return np.asarray(np.where(least <= 0, 1.0, np.where(least > coins, 0.0, within)), dtype=np.float64)


def _check(clients: int, epsilon0: float) -> None:
    check_positive("epsilon0", epsilon0)
    check_whole("clients", clients)
