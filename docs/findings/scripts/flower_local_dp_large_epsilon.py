"""The noise of the mod for local differential privacy at a large epsilon.

Library: flwr==1.42.0.
"""

import fedassay
import numpy as np
from flower_round import through
from flwr.clientapp.mod import LocalDpMod

CLIP, DELTA = 1.0, 1e-5


def exact(sigma):
    return fedassay.Claim.stated(mu=2 * CLIP / sigma, delta=DELTA).epsilon


for epsilon in (1.0, 5.0, 10.0):
    mod = LocalDpMod(clipping_norm=CLIP, sensitivity=2 * CLIP, epsilon=epsilon, delta=DELTA)
    np.random.seed(0)
    sigma = np.std([through(mod, [np.zeros(1)], [np.ones(1)])[0][0][0] for _ in range(4000)])
    stated = 2 * CLIP * np.sqrt(2 * np.log(1.25 / DELTA)) / epsilon
    print(f"epsilon {epsilon:g}: noise {sigma:.3f} (formula {stated:.3f}), worth epsilon {exact(stated):.3f}")
print(f"verdict: REFUTED, epsilon {exact(stated):.2f} by calculation at epsilon 10 (up to 5: holds)")
