"""Reports are remembered for each value, which shows the server on which day a value changed.

The claim is about the whole sequence of a client. The correct version reports freshly, with a share of epsilon a day.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0


def randomise(value, epsilon, rng):
    flip = rng.random() < 1 / (1 + np.exp(epsilon))
    return float(value != flip)


def correct(sequence, rng):
    return np.array([randomise(value, EPSILON / len(sequence), rng) for value in sequence])


def broken(sequence, rng):
    remembered = {value: randomise(value, EPSILON, rng) for value in (0, 1)}
    return np.array([remembered[value] for value in sequence])


claim = Claim(epsilon=EPSILON, unit="client", observer="the server that receives all reports of the client")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=((0, 0, 0, 0), (0, 0, 1, 1)),
    source="https://arxiv.org/abs/1712.01524",
    ideal="a change of the report shows that the value changed",
    event=lambda released: bool(np.any(released != released[0])),
    proof="a constant sequence never gives reports that differ",
)
