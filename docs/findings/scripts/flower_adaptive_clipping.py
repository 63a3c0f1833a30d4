"""The clip norm is updated between clipping and noise, so clipped updates get the noise of a smaller norm.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply
from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg

CLIENTS, SIZE = 100, 20_000


def round_of(rate, seed=0):  # all clients clipped, which is the case in which the clip norm must hold
    wrapper = DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(), 1.0, CLIENTS, initial_clipping_norm=1.0, clip_norm_lr=rate
    )
    start, long = np.zeros(SIZE), np.full(SIZE, 10 * SIZE**-0.5)
    np.random.seed(seed)
    noise = released(wrapper, [start], [reply([start + long]) for _ in range(CLIENTS)])[0] - long / 10
    used = noise.std() * CLIENTS  # the clip norm of the updates is 1
    return used / wrapper.noise_multiplier, wrapper.clipping_norm


ratio, after = round_of(0.2)
print(
    f"all updates clipped at 1: noise of clip norm {ratio:.3f}, next clip norm {after:.3f} (it falls: all are clipped)"
)
print(f"at a rate of 1 instead of 0.2: {round_of(1.0)[0]:.3f}")
print(f"verdict: REFUTED, effective noise multiplier {ratio:.2f} of the stated one (default rate, all updates clipped)")
