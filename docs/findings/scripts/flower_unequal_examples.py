"""Updates are averaged by their numbers of examples; the noise is that of an average with equal weights.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

CLIENTS, CLIP = 10, 1.0


def average(update, examples):  # of one client with `update` and `examples`, and nine that send no change to speak of
    others = [reply([np.array([0.0, 1e-9])]) for _ in range(CLIENTS - 1)]
    wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, CLIP, CLIENTS)  # noise off: sensitivity alone
    return released(wrapper, [np.zeros(2)], [reply([np.array([update, 1e-9])], examples), *others])[0]


stated = CLIP / CLIENTS  # noise at multiplier 1
effective = {}
for examples in (1, 10, 1000):
    moved = np.linalg.norm(average(CLIP, examples) - average(0.0, examples))
    effective[examples] = stated / moved
print("effective noise multiplier, one of ten clients with 1, 10, 1000 times the examples:", effective)
print(f"verdict: REFUTED, effective noise multiplier {effective[10]:.3f} of the stated one (10 times the examples)")
