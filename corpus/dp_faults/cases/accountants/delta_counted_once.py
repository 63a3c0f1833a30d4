"""Ten releases of delta 0.05 each are stated with a delta of 0.05 in total.

Each release answers by randomised response, and with probability 0.05 it fails and gives the true bit.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, FAILURE, RELEASES = 0.2, 0.05, 10


def release(bit, rng):
    flips = rng.random(RELEASES) < 1 / (1 + np.exp(EPSILON))
    fails = rng.random(RELEASES) < FAILURE
    answers = np.where(flips, 1 - bit, bit)
    return np.where(fails, 10 + bit, answers).astype(float)


def program(delta):
    claim = Claim(epsilon=RELEASES * EPSILON, delta=delta, unit="bit")
    law = {"mechanism": "randomised response that fails", "epsilon": EPSILON, "delta": FAILURE, "steps": RELEASES}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(RELEASES * FAILURE),
    broken=program(FAILURE),
    neighbours=(0, 1),
    source="own",
    ideal="deltas add up: delta is 0.4 to 0.5",
    event=lambda released: bool(np.any(released == 11)),
    proof="a failure occurs with probability 1 - 0.95^10 = 0.40 and shows the bit",
)
