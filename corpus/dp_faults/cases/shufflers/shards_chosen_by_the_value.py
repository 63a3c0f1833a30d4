"""Reports are mixed in two shards, whose sizes the server receives, and the shard of a report follows from its value.

The claim of fifty shuffled reports was computed exactly, as the largest delta over all bits of the other clients. The
correct version draws the shard of each report.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0


def release(bits, shards, rng):
    """Return the size of the first shard, and the mixed reports of both."""
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    reports = rng.permutation(np.where(flips, 1 - bits, bits).astype(float))
    return np.append(np.sum(shards == 0), reports)


def correct(bits, rng):
    return release(bits, rng.integers(2, size=len(bits)), rng)


def broken(bits, rng):
    return release(bits, bits, rng)


claim = Claim(epsilon=0.75, delta=0.01, unit="client", observer="the server that receives reports and shard sizes")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [30, 20]), np.repeat([0, 1], [29, 21])),
    source="https://github.com/private-attribution/ipa/issues/972",
    ideal="the size of a shard is the exact number of zeros",
    event=lambda released: released[0] == 30,
    proof="30 or 29 reports are in the first shard",
)
