"""The average divides by the replies that arrived; the noise is that of all sampled clients.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

SAMPLED, CLIP = 10, 1.0


def average(update, arrived):
    wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, CLIP, SAMPLED)
    replies = [reply([np.array([update, 1e-9])])] + [reply([np.array([0.0, 1e-9])]) for _ in range(arrived - 1)]
    return released(wrapper, [np.zeros(2)], replies)[0]


moved = {arrived: np.linalg.norm(average(CLIP, arrived) - average(0.0, arrived)) for arrived in (10, 5, 2)}
effective = {arrived: CLIP / SAMPLED / norm for arrived, norm in moved.items()}
print("effective noise multiplier by replies of 10:", effective)
print(f"verdict: REFUTED, effective noise multiplier {effective[5]:.3f} of the stated one (5 of 10 replies; it warns)")
