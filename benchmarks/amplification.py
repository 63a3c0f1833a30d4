"""Amplification of personal budgets by shuffling, against the number of clients: Figure 2(a) of Liu et al. 2023 (APES).

    python benchmarks/amplification.py                    # Uniform2, the other budgets at 10,000; about a minute
    python benchmarks/amplification.py --budgets gauss2

Epsilon of one coordinate of one report at delta 1e-8. ``as published``: APES' clones averaged over all
mechanisms; ``largest``, ``median``: the provable epsilon of a client of that budget, by clones of its own mechanism, if
all run clip-Laplace and (``Laplace``) if all run the classic mechanism; ``clones``: all clients at the largest budget,
evaluated exactly (Feldman et al. 2021), and its closed form as printed, where that admits the numbers. The bounds of
Balle et al. 2019, Girgis et al. 2021 and Erlingsson et al. 2019, also in the figure, are not implemented.
"""

import argparse
import math

from fedassay.defenses.accounting.clones import shuffled
from fedassay.defenses.accounting.counts import least_epsilon
from fedassay.defenses.accounting.heterogeneous import published_bound
from fedassay.defenses.shuffling.claims.amplification import AssuredCohort, among_unequal_laplace, among_unequals
from fedassay.defenses.shuffling.claims.budgets import KNOWN_BUDGETS, deal, representative_clients

DELTA = 1e-8
CROWDS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
HEADERS = ("clients", "as published", "largest", "median", "Laplace, largest", "Laplace, median", "clones", "printed")


def closed_form(largest: float, clients: int) -> float | None:
    """Equation 2 as printed; None outside its regime (Feldman et al. 2021, Theorem 3.1)."""
    if largest > math.log(clients / (16 * math.log(2 / DELTA))):
        return None
    spread = 8 * math.sqrt(math.exp(largest) * math.log(4 / DELTA) / clients) + 8 * math.exp(largest) / clients
    return math.log1p(math.tanh(largest / 2) * spread)


def row(name: str, clients: int) -> list[float | None]:
    """Epsilons in the order of ``HEADERS``."""
    budgets = deal(name, clients)
    _, median, most = representative_clients(budgets)
    everybody, largest = AssuredCohort(others=clients - 1, failure=0.0), budgets[most]
    each = [
        hidden(client=client, budgets=budgets, cohort=everybody)
        for hidden in (among_unequals, among_unequal_laplace)
        for client in (most, median)
    ]
    own = [least_epsilon(profile.delta, DELTA) for profile in each]
    exact = shuffled(clients=clients, epsilon0=largest).epsilon(DELTA)
    return [published_bound(budgets).epsilon(DELTA), *own, exact, closed_form(largest, clients)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", choices=KNOWN_BUDGETS, default="uniform2")
    arguments = parser.parse_args()
    settings = [(arguments.budgets, clients) for clients in CROWDS]
    settings += [(name, 10_000) for name in KNOWN_BUDGETS if name != arguments.budgets]
    print(f"| budgets | {' | '.join(HEADERS)} |")
    print("|---|" + "---|" * len(HEADERS))
    for name, clients in settings:
        told = ("–" if value is None else f"{value:.4f}" for value in row(name, clients))
        print(f"| {name} | {clients:,} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
