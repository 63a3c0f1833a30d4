"""A client's sampling rate is its lot divided by the records of all clients, but it draws from its own records.

The claim is about a record of the client, whose updates the server receives one by one.
"""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import sampled_gaussian_epsilon

NOISE_MULTIPLIER, STEPS, DELTA = 2.0, 16, 0.01
LOT, OWN, ALL = 4, 8, 80


def release(data, rng):
    values = np.clip(data, -1, 1)
    taken = rng.random((STEPS, len(values))) < LOT / OWN
    return taken @ values + rng.normal(scale=NOISE_MULTIPLIER, size=STEPS)


def program(records):
    epsilon = sampled_gaussian_epsilon(LOT / records, NOISE_MULTIPLIER, STEPS, DELTA)
    observer = "the server, which receives the client's updates"
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": LOT / OWN, "steps": STEPS}
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="zero_out", observer=observer)
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(OWN),
    broken=program(ALL),
    neighbours=(np.zeros(8), np.append(np.zeros(7), 1.0)),
    source="https://github.com/google-research/federated/issues/25",
    ideal="the lots hold half of the client's records: the rate is 0.5 instead of 0.05",
    event=lambda released: released.sum() > 6,
    proof="the sum of the steps moves by 8, for noise of standard deviation 8.2: mu is about 1",
)
