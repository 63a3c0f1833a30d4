"""The noise is added to the sum of a lot, and the accountant takes it for noise of the mean."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

SIGMA, CLIP, RECORDS, DELTA = 1.0, 1.0, 20, 1e-3


def release(data, rng):
    """The mean of clipped values and noise; the number of records is public."""
    return np.array([(np.clip(data, 0, CLIP).sum() + rng.normal(scale=SIGMA)) / RECORDS])


def program(noise_multiplier):
    claim = Claim(epsilon=gaussian_epsilon(1 / noise_multiplier, DELTA), delta=DELTA)
    law = {"mechanism": "gaussian", "noise_multiplier": SIGMA / CLIP, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(SIGMA / CLIP),
    broken=program(SIGMA / (CLIP / RECORDS)),
    neighbours=(np.full(20, 0.5), np.append(np.full(19, 0.5), 1.0)),
    source="https://github.com/meta-pytorch/opacus/issues/753",
    ideal="the noise multiplier is 1, and 20 was accounted for",
    event=lambda released: released[0] > 0.51,
    trials=8000,
    proof="the two means are half a standard deviation apart: delta at the stated epsilon 0.084 is 0.17",
)
