"""The wrappers add the noise of an average after any strategy, whatever its sensitivity is.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply
from flwr.serverapp import strategy as flower

CLIENTS, CLIP, DIMENSIONS = 11, 1.0, 100
first = np.eye(DIMENSIONS)[0]
even = np.full(DIMENSIONS, DIMENSIONS**-0.5)
SURROUNDINGS = {  # what the other ten clients send
    "quiet": [np.full(DIMENSIONS, 1e-9)] * 10,
    "clipped": [first] * 10,
    "split": [first, -first] * 5,
    "spread": [even, -even] * 5,
}
STRATEGIES = {
    "FedAvg": lambda: flower.FedAvg(),
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9),
    "FedAdam": lambda: flower.FedAdam(),
    "FedAdagrad": lambda: flower.FedAdagrad(),
    "FedYogi": lambda: flower.FedYogi(),
    "FedMedian": lambda: flower.FedMedian(),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(),
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
}


def model(make, others, unit, examples, replies):
    wrapper = flower.DifferentialPrivacyServerSideFixedClipping(make(), 0.0, CLIP, CLIENTS)  # noise off
    answers = [reply([unit], examples)] + [reply([update]) for update in others[: replies - 1]]
    return released(wrapper, [np.zeros(DIMENSIONS)], answers)[0]


def effective(make, examples, replies):  # noise multiplier, of a stated one of 1
    moved = 0.0
    for others in SURROUNDINGS.values():
        quiet = model(make, others, np.full(DIMENSIONS, 1e-9), examples, replies)
        for unit in (first, -first, even, -even):
            moved = max(moved, float(np.linalg.norm(model(make, others, unit, examples, replies) - quiet)))
    return CLIP / CLIENTS / moved if moved else np.inf


plain = {}
for name, make in STRATEGIES.items():
    plain[name] = effective(make, 1, CLIENTS)
    others = {"10 x examples": (10, CLIENTS), "6 of 11 replies": (1, 6), "both": (10, 6)}
    row = {case: f"{effective(make, *sizes):.3f}" for case, sizes in others.items()}
    print(f"{name}: all equal {plain[name]:.3f}", row)
bad = [name for name, value in plain.items() if value < 0.99]
print(f"verdict: REFUTED for {', '.join(bad)}: effective noise multiplier down to {min(plain.values()):.3f}")
