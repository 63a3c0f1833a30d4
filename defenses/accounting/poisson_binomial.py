"""Bound the privacy of sums of coin tosses whose biases encode clients' numbers (Chen, Ozgur, Kairouz 2022).

A client's row x of L2 norm at most 1 becomes a count of Bin(trials, 1/2 + theta x_j) per coordinate; the sum is
released.
"""

import math
from functools import lru_cache

from ..defense import check_whole
from .conversion import renyi_budget
from .discrete import check_order

# Share of delta for rounds in which fewer coins are fair than assumed.
_LEAKED = 0.01
LARGEST_BIAS = 0.25


def row_rdp(order: float, *, trials: int, fair: float, theta: float) -> float:
    """Bound the Renyi divergence at ``order`` >= 2, in both directions, between two secure sums: one with a client's
    vector of L2 norm at most 1, one with a vector of zeros in its place.

    Every coordinate's sum contains ``fair`` fair coins of other clients. The divergence is that of a Gaussian of their
    variance, or little more.

    Let y be the mean of the M = trials + fair coins as signs, eta = 2 theta |x_j| and mu^2 = eta^2 trials^2 / M. With
    the row zero all coins are fair. With the row there the ratio of chances is that of ``trials`` coins drawn from the
    M, prod_i (1 + eta y_i) with y_i in [-1, 1], as a hypergeometric number is a sum of independent coins (Vatutin,
    Mikhailov 1982); sum y_i = trials y and sum y_i^2 <= trials^2 / M + trials y^2.

    - Row against zeros: the ratio is convex in y, so spreading the bias evenly over all M coins costs no less (as
      Hoeffding 1956), and by the two-point inequality (Bonami 1970) that costs ``order mu^2 / 2``.
    - Zeros against row: with c = (-ln(1 - eta) - eta) / eta^2, log(1 + u) >= u - c u^2 leaves the moment of a quadratic
      in y, which is sub-Gaussian: ``c mu^2 + ((order - 1) mu^2 / 2 + c mu^2 / trials) / (1 - 2 b)`` with b = (order -
      1) c mu^2 / trials. It is the larger one, and infinite where 2 b >= 1.

    Both grow with x_j^2 at most, so all coordinates together cost no more than one coordinate of length 1.
    """
    check_order(order)
    if order < 2:
        raise ValueError(f"the Renyi order must be >= 2 for the Poisson-binomial bound, got {order}")
    check_whole("trials", trials)
    check_bias(theta)
    eta = 2 * theta
    mu2, curve = (eta * trials) ** 2 / (trials + fair), (-math.log1p(-eta) - eta) / eta**2
    bend = 2 * (order - 1) * curve * mu2 / trials
    if bend >= 1:
        return math.inf
    return curve * mu2 + ((order - 1) * mu2 / 2 + curve * mu2 / trials) / (1 - bend)


def fair_coins(coins: int, *, theta: float, nats: float) -> float:
    """Return a lower bound on how many of the other clients' ``coins`` are fair, so that their outcomes are independent
    of the data; the bound fails with probability at most exp(-``nats``).

    A coin of probability 1/2 + theta x is fair except for a share 2 theta, in which it depends on x. By Bernstein's
    inequality.
    """
    biased = 2 * theta * coins
    reach = nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * biased * (1 - 2 * theta))
    return max(0.0, coins - biased - reach)


@lru_cache(maxsize=1024)
def largest_bias(*, clients: int, trials: int, epsilon: float, delta: float, rounds: int, dimension: int) -> float:
    """Return the largest bias theta of a coin (at most 1/4, with relative error 1e-6) at which sums over ``clients``
    clients satisfy (epsilon, delta) over all rounds.

    The guarantee is of one client's row against zeros, for any rows of the others. Rounds with different numbers of
    clients compose, because all of them use the same part of the budget at the same order.
    """
    for name, value in (("clients", clients), ("rounds", rounds), ("dimension", dimension)):
        check_whole(name, value)
    budget, nats = renyi_budget(epsilon, (1 - _LEAKED) * delta), math.log(dimension * rounds / (_LEAKED * delta))

    def keeps(theta: float) -> bool:
        fair = fair_coins((clients - 1) * trials, theta=theta, nats=nats)
        return row_rdp(budget.order, trials=trials, fair=fair, theta=theta) <= budget.rdp / rounds

    if keeps(LARGEST_BIAS):
        return LARGEST_BIAS
    low, high = 0.0, LARGEST_BIAS
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def check_bias(theta: float) -> None:
    """Raise ValueError unless the bias ``theta`` of a coin is in (0, 1/2)."""
    if not 0 < theta < 0.5:
        raise ValueError(f"theta, the bias of a coin, must be in (0, 1/2), got {theta}")
