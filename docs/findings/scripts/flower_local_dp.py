"""Noise is calibrated to a free argument; reports that are clipped to C differ by up to 2C.

Library: flwr==1.42.0.
"""

import fedassay
import numpy as np
from flower_round import through
from flwr.clientapp.mod import LocalDpMod

CLIP, EPSILON, DELTA = 1.0, 1.0, 1e-5
mod = LocalDpMod(clipping_norm=CLIP, sensitivity=CLIP, epsilon=EPSILON, delta=DELTA)


def report(update, rng):
    np.random.seed(int(rng.integers(2**32)))
    return through(mod, [np.zeros(1)], [np.array([float(update)])])[0][0][0]


np.random.seed(0)
sigma = np.std([through(mod, [np.zeros(1)], [np.ones(1)])[0][0][0] for _ in range(2000)])
exact = fedassay.Claim.stated(mu=2 * CLIP / (CLIP * np.sqrt(2 * np.log(1.25 / DELTA))), delta=DELTA)
claim = fedassay.Claim.stated(
    mu=CLIP / (CLIP * np.sqrt(2 * np.log(1.25 / DELTA))), delta=DELTA, unit="report", adjacency="replace_one"
)
found = fedassay.audit_mechanism(report, claim, inputs=(-CLIP, CLIP), trials=4000)
print(f"noise {sigma:.3f}; epsilon of two opposite reports {exact.epsilon:.3f} by calculation (claim {EPSILON})")
print(found.line())
print(
    f"verdict: not stated; epsilon {exact.epsilon:.2f} (claim 1) if sensitivity is the clip norm; holds at twice that"
)
