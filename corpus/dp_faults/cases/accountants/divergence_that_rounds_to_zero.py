"""The Renyi divergence of an order next to 1 is kept in single precision, is 0, and so is epsilon.

A divergence of order 1 bounds the total variation by sqrt(1 - e^-divergence); below delta it gives epsilon 0.
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

NOISE_MULTIPLIER, DELTA = 1.0, 1e-3
GRID = np.linspace(-12, 13, 5001)


def rdp(order, precision):
    """Integrate the moment of the ratio of two normal densities on a grid."""
    without = np.exp(-(GRID**2) / 2)
    ratio = np.exp((GRID - 0.5) / NOISE_MULTIPLIER**2)
    moment = precision(np.sum(without * ratio**order) / without.sum())
    return math.log(moment) / (order - 1)


def stated(precision):
    """The divergence near order 1, if it is small enough, else the exact epsilon."""
    divergence = rdp(1 + 1e-8, precision)
    if 1 - math.exp(-divergence) <= DELTA**2:
        return 1e-6  # a claim needs an epsilon above 0
    return gaussian_epsilon(1 / NOISE_MULTIPLIER, DELTA)


def release(data, rng):
    return np.array([np.clip(data, 0, 1).sum() + rng.normal(scale=NOISE_MULTIPLIER)])


def program(epsilon):
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="numbers",
    correct=program(stated(np.float64)),
    broken=program(stated(np.float32)),
    neighbours=(np.array([0.5, 0.25]), np.array([0.5, 0.25, 1.0])),
    source="https://github.com/tensorflow/privacy/issues/166",
    ideal="epsilon 0 with finite noise is impossible: the divergence was rounded",
    event=lambda released: released[0] > 1.25,
    proof="the exact delta at epsilon 0 is 0.38",
)
