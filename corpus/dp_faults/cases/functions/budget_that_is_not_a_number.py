"""The price of a query is computed from the data, is NaN where a value is missing, and the ledger never closes.

Four counts at a price of 1/4 fit the budget of 1. Comparisons with NaN are false, so a missing value opens the ledger.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
PRICE = 0.25


def answers(data, price, rng):
    """Answer six counts as long as the budget lasts; refused answers are -1000."""
    spent, released = 0.0, []
    for low in range(6):
        if spent + price > EPSILON:
            released.append(-1000.0)
            continue
        spent += price
        released.append(np.sum(data > low) + rng.laplace(scale=1 / PRICE))
    return np.array(released)


def correct(data, rng):
    return answers(data, PRICE, rng)


def broken(data, rng):
    """A count moves by at most 1, and not at all where all values are equal."""
    sensitivity = np.minimum(1.0, np.ptp(data))
    return answers(data, sensitivity * PRICE, rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 2.0, 5.0]), np.array([0.0, np.nan, 5.0])),
    source="https://github.com/OpenMined/PySyft/issues/6956",
    ideal="a missing value lets the ledger answer without end, and shows itself by this",
    event=lambda released: released[-1] > -1000,
    proof="the sixth count is refused exactly where no value is missing",
)
