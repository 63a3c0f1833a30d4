"""Each of four hundred clients rounds its share of the noise to an integer, which is nearly always 0.

The correct version draws integer shares, differences of Poisson numbers, whose sum has the variance 4. For this sum
delta at epsilon 2 and sensitivity 1 is below 1e-6.
"""

import numpy as np

from dp_faults import Case, Claim, Program

VARIANCE = 4.0


def correct(bits, rng):
    share = VARIANCE / len(bits) / 2
    shares = rng.poisson(share, size=len(bits)) - rng.poisson(share, size=len(bits))
    return np.array([float(np.sum(bits + shares))])


def broken(bits, rng):
    shares = rng.normal(scale=np.sqrt(VARIANCE / len(bits)), size=len(bits))
    return np.array([float(np.sum(bits + np.rint(shares)))])


claim = Claim(epsilon=2, delta=1e-3, unit="client", observer="the server that receives the sum")
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [200, 200]), np.repeat([0, 1], [199, 201])),
    source="https://github.com/privcount/privcount/issues/71",
    ideal="shares of standard deviation 0.1 round to 0: the sum is exact",
    event=lambda released: released[0] == 200,
    trials=2000,
    proof="a share leaves 0 with probability 6e-7",
)
