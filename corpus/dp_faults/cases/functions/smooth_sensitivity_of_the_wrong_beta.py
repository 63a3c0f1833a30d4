"""The smooth sensitivity of a median is computed with a beta of 6 epsilon instead of epsilon / 6.

A large beta follows the local sensitivity too closely: the scale itself reveals the data. Cauchy noise of scale
6 S / epsilon needs beta <= epsilon / 6.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def smooth_sensitivity(data, beta):
    values = np.concatenate([np.zeros(len(data)), np.sort(data), np.ones(len(data))])
    middle = len(data) + len(data) // 2
    bounds = [max(values[middle + t] - values[middle + t - k - 1] for t in range(k + 2)) for k in range(len(data) + 1)]
    return np.max(np.exp(-beta * np.arange(len(data) + 1)) * bounds)


def release(data, beta, rng):
    return np.array([np.median(data) + 6 * smooth_sensitivity(data, beta) / EPSILON * rng.standard_cauchy()])


def correct(data, rng):
    return release(data, EPSILON / 6, rng)


def broken(data, rng):
    return release(data, 6 * EPSILON, rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 0.0, 0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0, 1.0])),
    source="https://cs-people.bu.edu/ads22/pubs/NRS07/NRS07-full-draft-v1.pdf",
    ideal="the scale of the noise changes by e^6 between neighbours",
    event=lambda released: abs(released[0]) < 0.1,
    trials=2000,
    proof="the scales are 6 e^-6 and 6, so the densities at 0 differ by the factor e^6",
)
