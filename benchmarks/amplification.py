"""Amplification of personal budgets by shuffling, against the number of clients: Figure 2(a) of Liu et al. 2023 (APES).

    python benchmarks/amplification.py                    # Uniform2, the other budgets at 10,000; about a minute
    python benchmarks/amplification.py --budgets gauss2
    python benchmarks/amplification.py --randomisers      # the privacy blanket against clones, 100 to a million reports

Epsilon of one coordinate of one report at delta 1e-8. ``as published``: APES' clones averaged over all mechanisms;
``largest``, ``median``: the provable epsilon of a client of that budget, by the privacy blanket of its own mechanism,
if all run clip-Laplace and (``Laplace``) if all run the classic mechanism. The other columns assume the largest budget
for all clients, as the paper does: ``FMT'22``: clones, evaluated exactly (Feldman et al. 2021), and its closed form as
printed; ``BBGN'19``, ``GDDTK'21``, ``Erlingsson'19``: see ``blanket``, ``renyi`` and ``swap``. A number in brackets
lies outside of the condition of its theorem.
"""

import argparse
import math
from collections.abc import Callable
from functools import partial

import numpy as np
from fedassay.audit.curve import mu_from_epsilon
from fedassay.defenses.accounting.accountant import epsilon_from_rdp
from fedassay.defenses.accounting.blanket import gaussian, laplace, randomised_response
from fedassay.defenses.accounting.counts import least_epsilon
from fedassay.defenses.accounting.shuffled import published_bound, shuffled, shuffled_bits
from fedassay.defenses.shuffling.budgeted import CoordinateNoise
from fedassay.defenses.shuffling.claims import (
    KNOWN_BUDGETS,
    AssuredCohort,
    among_unequals,
    deal,
    representative_clients,
)
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

DELTA = 1e-8
CROWDS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
HEADERS = (
    *("clients", "as published", "largest", "median", "Laplace, largest", "Laplace, median"),
    *("FMT'22", "its closed form", "BBGN'19", "GDDTK'21", "Erlingsson'19"),
)
RANDOMISERS = ("clones", "2 values", "10 values", "Laplace", "clip-Laplace", "Gaussian", "exact, 2 values")
_ORDERS = sorted({*range(2, 64), *np.geomspace(64, 20_000, 300).astype(int).tolist()})


def closed_form(largest: float, clients: int) -> float | None:
    """Equation 2 as printed; None outside its regime (Feldman et al. 2021, Theorem 3.1)."""
    if largest > math.log(clients / (16 * math.log(2 / DELTA))):
        return None
    spread = 8 * math.sqrt(math.exp(largest) * math.log(4 / DELTA) / clients) + 8 * math.exp(largest) / clients
    return math.log1p(math.tanh(largest / 2) * spread)


def blanket(epsilon0: float, clients: int, delta: float = DELTA) -> float:
    """The generic bound for any epsilon0-LDP randomiser by the privacy blanket: the smaller one of the bounds by
    Hoeffding's and by Bennett's inequality (Balle, Bell, Gascon, Nissim 2019, Section 5).

    delta = E[(L_1 + ... + L_m)+] / (gamma n), m ~ Bin(n, gamma), gamma >= e^-eps0, where the L have mean 1 - e^eps.
    Never above epsilon0.
    """
    return min(_least(partial(bound, epsilon0=epsilon0, clients=clients), epsilon0, delta) for bound in _TAILS)


def hoeffding(epsilon: float, epsilon0: float, clients: int) -> float:
    """Delta by the range of L, at most (e^eps + 1) (e^eps0 - e^-eps0): a sum over m in closed form."""
    gamma, mean = math.exp(-epsilon0), math.expm1(epsilon)
    spread = (math.exp(epsilon) + 1) * 2 * math.sinh(epsilon0)
    total = (1 + gamma * math.expm1(-2 * (mean / spread) ** 2)) ** clients
    return total * spread**2 / (4 * mean * gamma * clients)


def bennett(epsilon: float, epsilon0: float, clients: int) -> float:
    """Delta by the largest value of L, e^eps0 - e^(eps - eps0), and its second moment."""
    gamma, mean = math.exp(-epsilon0), math.expm1(epsilon)
    most = math.exp(epsilon0) - math.exp(epsilon - epsilon0)
    square = math.exp(epsilon0) * (math.exp(2 * epsilon) + 1) - 2 * gamma * math.exp(epsilon - 2 * epsilon0)
    ratio = mean * most / square
    exponent = square / most**2 * ((1 + ratio) * math.log1p(ratio) - ratio)
    # E[e^(-m exponent)] over m >= 1: with m = 0 the sum of the L is 0.
    total = (1 + gamma * math.expm1(-exponent)) ** clients - (1 - gamma) ** clients
    return total * most / math.log1p(ratio) / (gamma * clients)


_TAILS = (hoeffding, bennett)


def renyi(epsilon0: float, clients: int, delta: float = DELTA) -> float:
    """The bound by Renyi DP for any discrete epsilon0-LDP randomiser (Girgis et al. 2021, Theorem 3.1), converted to
    delta at the best of 360 integer orders up to 20,000. Never above epsilon0.
    """
    divergence = partial(renyi_divergence, epsilon0=epsilon0, clients=clients)
    return min(epsilon0, epsilon_from_rdp(divergence, delta, _ORDERS))


def renyi_divergence(order: int, epsilon0: float, clients: int) -> float:
    """Girgis et al. 2021, Theorem 3.1: with n' = floor((n - 1) / (2 e^eps0)) + 1,

    ln(1 + C(a,2) (e^eps0 - 1)^2 / (n' e^eps0) + sum_(i=3..a) C(a,i) i Gamma(i/2) ((e^(2 eps0) - 1)^2 /
    (2 e^(2 eps0) n'))^(i/2) + e^(eps0 a - (n - 1) / (8 e^eps0))) / (a - 1).
    """
    clones = math.floor((clients - 1) / (2 * math.exp(epsilon0))) + 1
    second = math.log(order * (order - 1) / 2) + 2 * math.log(2 * math.sinh(epsilon0 / 2)) - math.log(clones)
    powers = np.arange(3, order + 1)
    choose = gammaln(order + 1) - gammaln(powers + 1) - gammaln(order - powers + 1)
    reach = 2 * math.log(2 * math.sinh(epsilon0)) - math.log(2 * clones)
    higher = choose + np.log(powers) + gammaln(powers / 2) + powers / 2 * reach
    few = epsilon0 * order - (clients - 1) / (8 * math.exp(epsilon0))
    return float(logsumexp([0.0, second, few, *higher])) / (order - 1)


def swap(epsilon0: float, clients: int, delta: float = DELTA) -> float:
    """The closed form of Erlingsson et al. 2019, 12 eps0 sqrt(ln(1/delta) / n), stated for eps0 < 1/2, n > 1000 and
    delta < 1/100 (in these constants also in Balle et al. 2019, who compare with it).
    """
    return 12 * epsilon0 * math.sqrt(math.log(1 / delta) / clients)


def swap_holds(epsilon0: float, clients: int, delta: float = DELTA) -> bool:
    """Whether the condition of ``swap`` holds."""
    return epsilon0 < 0.5 and clients > 1000 and delta < 0.01


def _least(bound: Callable[[float], float], epsilon0: float, delta: float) -> float:
    """The epsilon at which a falling bound on delta meets ``delta``; epsilon0 where it stays above."""
    low, high = 1e-6, epsilon0 * (1 - 1e-9)
    if bound(high) > delta:
        return epsilon0
    # Above the root a bound may underflow to 0, which has no logarithm.
    return float(brentq(lambda epsilon: math.log(max(bound(epsilon), 1e-300) / delta), low, high, xtol=1e-12))


def row(name: str, clients: int) -> list[str]:
    """Epsilons in the order of ``HEADERS``."""
    budgets = deal(name, clients)
    _, median, most = representative_clients(budgets)
    everybody, largest = AssuredCohort(others=clients - 1, failure=0.0), budgets[most]
    each = [
        among_unequals(client=client, budgets=budgets, cohort=everybody, noise=noise)
        for noise in CoordinateNoise
        for client in (most, median)
    ]
    own = [least_epsilon(profile.delta, DELTA) for profile in each]
    exact, closed = shuffled(clients=clients, epsilon0=largest).epsilon(DELTA), closed_form(largest, clients)
    proved = [published_bound(budgets).epsilon(DELTA), *own, exact]
    swapped = f"{swap(largest, clients):.4f}"
    return [
        *(f"{value:.4f}" for value in proved),
        "–" if closed is None else f"{closed:.4f}",
        *(f"{bound(largest, clients):.4f}" for bound in (blanket, renyi)),
        swapped if swap_holds(largest, clients) else f"({swapped})",
    ]


def randomisers(epsilon0: float, clients: int) -> list[str]:
    """Epsilons by clones, for any randomiser; by the blanket of five; and the exact one of shuffled bits."""
    several = (
        randomised_response(epsilon0=epsilon0, values=2, reports=clients),
        randomised_response(epsilon0=epsilon0, values=10, reports=clients),
        laplace(epsilon0=epsilon0, reports=clients, clipped=False),
        laplace(epsilon0=epsilon0, reports=clients, clipped=True),
        gaussian(sigma=1 / mu_from_epsilon(epsilon0, DELTA), reports=clients),
        shuffled_bits(clients=clients, epsilon0=epsilon0),
    )
    found = [shuffled(clients=clients, epsilon0=epsilon0).epsilon(DELTA), *(one.epsilon(DELTA) for one in several)]
    return [f"{value:.4f}" for value in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", choices=KNOWN_BUDGETS, default="uniform2")
    parser.add_argument("--randomisers", action="store_true", help="the privacy blanket of randomisers against clones")
    arguments = parser.parse_args()
    if arguments.randomisers:
        print(f"| epsilon0 | clients | {' | '.join(RANDOMISERS)} |")
        print("|---|---|" + "---|" * len(RANDOMISERS))
        for epsilon0 in (0.5, 1.0, 2.0, 4.0):
            for clients in (100, 1_000, 10_000, 100_000, 1_000_000):
                print(f"| {epsilon0} | {clients:,} | {' | '.join(randomisers(epsilon0, clients))} |", flush=True)
        return
    settings = [(arguments.budgets, clients) for clients in CROWDS]
    settings += [(name, 10_000) for name in KNOWN_BUDGETS if name != arguments.budgets]
    print(f"| budgets | {' | '.join(HEADERS)} |")
    print("|---|" + "---|" * len(HEADERS))
    for name, clients in settings:
        print(f"| {name} | {clients:,} | {' | '.join(row(name, clients))} |", flush=True)


if __name__ == "__main__":
    main()
