"""Bound a client's privacy if its report is shuffled among other clients' reports, of equal or of unequal budgets.

Bound a client's privacy if its report is shuffled among other clients' reports (Feldman et al. 2021).

Bound each client's privacy when clip-Laplace reports with unequal budgets are shuffled (Liu et al. 2023, APES).

Where this differs from the paper. Its Lemma 5 and Theorem 4 count as clones of client 1 the reports that resemble
**any** client's mechanism, averaged over all. The proof does not show this, because the distribution rho in it depends
on the client; here only clones of client 1's own mechanism are counted, which gives a larger bound for clients with
large budgets. (The printed epsilons hold all the same, by a finer argument than either.) Its Lemma 4 has e^max of both
budgets where the exact exponent is the neighbour's own budget: valid, but loose.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import betainc, expit

from ...audit.arrays import FloatArray
from ...fl.fields import check_positive
from ..defense import check_whole
from .counts import CountLaw, CountPair, binomial, bit_among, least_epsilon, poisson_binomial


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
        """Compute the smallest epsilon at ``delta`` in (0, 1), rounded up by at most 1e-9; this epsilon never exceeds
        the local epsilon.
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


class Exponent(StrEnum):
    """A choice of the exponent in the divergence between two clients' mechanisms: the exact exponent, or that of the
    APES paper, which is the larger of the two clients' budgets.
    """

    EXACT = "exact"
    LARGER = "larger"


def client_bound(
    *, epsilon: float, others: Sequence[float] | FloatArray, exponent: Exponent = Exponent.EXACT
) -> ClonePair:
    """Return the worst-case pair of distributions of shuffled reports under two values of a client with budget
    ``epsilon``; the other clients have the budgets ``others``.

    The reports and, separately, the budgets are shuffled; clip-Laplace with inputs and outputs in [-C, C] and scale
    2C/eps. Each other client is a clone of this one's mechanism with its own ``clone_probability``; their number is
    Poisson-binomial and computed exactly. The unit is one coordinate of one client, under replace-one; the adversary is
    the analyser behind the shuffler.

    Raises:
        ValueError: for a budget that is not a finite number above 0.
    """
    check_positive("epsilon", epsilon)
    budgets = _budgets("others", others)
    return ClonePair(epsilon0=epsilon, clones=poisson_binomial(clone_probability(budgets, epsilon, exponent)))


def clone_probability(neighbour: FloatArray, epsilon: float, exponent: Exponent = Exponent.EXACT) -> FloatArray:
    """Compute the probability with which a report at budget ``neighbour`` can be treated as drawn by the mechanism at
    budget ``epsilon``, for any values of the two clients: the smallest ratio of the two clip-Laplace densities.

    ``(e_n / e) (1 - exp(-e)) / (1 - exp(-e_n)) exp(-e_n)`` (Liu et al. 2023, Lemma 4, with the exact exponent).
    """
    power = neighbour if exponent is Exponent.EXACT else np.maximum(neighbour, epsilon)
    return np.asarray(_flatness(neighbour) / _flatness(np.asarray(epsilon)) * np.exp(-power), dtype=np.float64)


def published_bound(budgets: Sequence[float] | FloatArray, exponent: Exponent = Exponent.LARGER) -> ClonePair:
    """Return the bound of the APES paper, evaluated exactly. The paper assumes the largest budget for all clients, and
    averages over **all** clients the probability that one client's report hides another client's (Lemma 5).

    The paper's argument does not prove this bound for a client's own loss (see the module); ``client_bound`` is proved.
    """
    ordered = np.sort(_budgets("budgets", budgets))
    return ClonePair(epsilon0=float(ordered[-1]), clones=poisson_binomial(_averaged(ordered, exponent)[:-1]))


def _averaged(ordered: FloatArray, exponent: Exponent) -> FloatArray:
    """Each client's clone probability, averaged over the mechanisms of all; budgets in ascending order."""
    inverse = 1 / _flatness(ordered)
    if exponent is Exponent.EXACT:
        return np.asarray(_flatness(ordered) * np.exp(-ordered) * inverse.mean(), dtype=np.float64)
    # exp(-max) is the client's own for smaller budgets and the other's for larger ones.
    # Two running sums avoid n^2 terms.
    smaller = np.exp(-ordered) * np.cumsum(inverse)
    larger = np.append(np.cumsum((inverse * np.exp(-ordered))[::-1])[::-1][1:], 0.0)
    return np.asarray(_flatness(ordered) * (smaller + larger) / ordered.size, dtype=np.float64)


def _flatness(epsilon: FloatArray) -> FloatArray:
    """``eps / (1 - exp(-eps))``: the density of clip-Laplace at the edge, over that of the uniform law."""
    return np.asarray(epsilon / -np.expm1(-epsilon), dtype=np.float64)


def _budgets(name: str, values: Sequence[float] | FloatArray) -> FloatArray:
    budgets = np.asarray(values, dtype=np.float64)
    if budgets.ndim != 1 or not np.all(np.isfinite(budgets) & (budgets > 0)):
        raise ValueError(f"{name} must be a one-dimensional array of finite numbers > 0, got {values!r}")
    return budgets
