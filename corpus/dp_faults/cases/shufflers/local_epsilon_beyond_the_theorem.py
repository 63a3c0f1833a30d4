"""The closed form of amplification by shuffling is used with a local epsilon beyond its range.

The theorem needs exp(local epsilon) <= n / (16 ln(2 / delta)). The correct version falls back to the local epsilon.
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL, CLIENTS, DELTA = 5.0, 400, 1e-3


def amplified(local, n, delta):
    e = math.exp(local)
    inside = 8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n
    return math.log1p((e - 1) / (e + 1) * inside)


def stated(local, n, delta):
    within = math.exp(local) <= n / (16 * math.log(2 / delta))
    return min(local, amplified(local, n, delta)) if within else local


def release(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + math.exp(LOCAL))
    return rng.permutation(np.where(flips, 1 - bits, bits).astype(float))


def claim(epsilon):
    return Claim(epsilon=epsilon, delta=DELTA, unit="client", observer="the server that receives the shuffled reports")


CASE = Case(
    fault="accounting",
    correct=Program(claim=claim(stated(LOCAL, CLIENTS, DELTA)), release=release),
    broken=Program(claim=claim(amplified(LOCAL, CLIENTS, DELTA)), release=release),
    neighbours=(np.zeros(CLIENTS), np.append(1.0, np.zeros(CLIENTS - 1))),
    source="https://arxiv.org/abs/2012.12803",
    ideal="fewer than three clients flip their bit: nothing is amplified at this delta",
    event=lambda released: released.sum() == 0,
    trials=12000,
    proof="no report is 1 with 0.068 or 0.00046: the ratio is e^5, and 0.068 is far above delta",
)
