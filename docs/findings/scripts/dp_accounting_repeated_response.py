"""Repeated randomised responses: what the accountant prints for a count of 100, for 100 calls, and what is true.

Library: dp-accounting==0.6.0.
"""

import math

from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent, pld
from scipy.optimize import brentq
from scipy.stats import binom

EPSILON, COUNT, DELTA = 0.1, 100, 1e-5
# A coin is kept with probability 1 - p / 2: the two answers then have a ratio of exp(EPSILON).
event = RandomizedResponseDpEvent(2 / (1 + math.exp(EPSILON)), 2)


def printed(calls, count):
    accountant = pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    for _ in range(calls):
        accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


def delta(epsilon):
    """Exact: of COUNT answers, k agree with the truth, and the loss is (2 k - COUNT) * EPSILON."""
    kept = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    losses = [((2 * k - COUNT) * EPSILON, binom.pmf(k, COUNT, kept)) for k in range(COUNT + 1)]
    return sum(chance * (1 - math.exp(epsilon - loss)) for loss, chance in losses if loss > epsilon)


true = brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, COUNT * EPSILON)
counted, called = printed(1, COUNT), printed(COUNT, 1)
print(f"compose(event, {COUNT}): {counted:.3f}; {COUNT} times compose(event): {called:.3f}; exact: {true:.3f}")
print(f"verdict: REFUTED, epsilon {true:.2f} by enumeration of 100 answers counted at once (printed {counted:.2f})")
