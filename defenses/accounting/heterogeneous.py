"""Bound each client's privacy when clip-Laplace reports with unequal budgets are shuffled (Liu et al. 2023, APES).

Where this differs from the paper. Its Lemma 5 and Theorem 4 count as clones of client 1 the reports that resemble
**any** client's mechanism, averaged over all. The proof does not show this, because the distribution rho in it depends
on the client; here only clones of client 1's own mechanism are counted, which gives a larger bound for clients with
large budgets. (The printed epsilons hold all the same, by a finer argument than either.) Its Lemma 4 has e^max of both
budgets where the exact exponent is the neighbour's own budget: valid, but loose.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from ...audit.arrays import FloatArray
from ...fl.fields import check_positive
from .clones import ClonePair
from .counts import poisson_binomial


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
