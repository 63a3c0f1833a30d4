"""The number of values within the clip bound is released as well, to adapt the bound, and is not accounted for."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

SIGMA, SIGMA_OF_COUNT, DELTA = 3.0, 0.5, 1e-3


def release(data, rng):
    """The sum of clipped values, and how many of them were not clipped."""
    total = np.clip(data, -1, 1).sum() + rng.normal(scale=SIGMA)
    return np.array([total, np.sum(np.abs(data) <= 1) + rng.normal(scale=SIGMA_OF_COUNT)])


def program(mu):
    claim = Claim(epsilon=gaussian_epsilon(mu, DELTA), delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multipliers": [SIGMA, SIGMA_OF_COUNT], "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(math.hypot(1 / SIGMA, 1 / SIGMA_OF_COUNT)),
    broken=program(1 / SIGMA),
    neighbours=(np.array([0.1, 4.0]), np.array([0.1, 4.0, 0.2])),
    source="https://arxiv.org/abs/1905.03871",
    ideal="the count has noise of 0.5 and costs more than the sum",
    event=lambda released: released[1] > 1.6,
    proof="the counts are two standard deviations apart: delta at the stated epsilon 0.8 is 0.54",
)
