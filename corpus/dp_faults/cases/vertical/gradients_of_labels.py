"""The party with the labels sends the gradient of each record's logit, whose sign is the label.

The correct version flips labels with probability 1 / (1 + e^epsilon) before it computes gradients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def gradients(logits, labels):
    return 1 / (1 + np.exp(-logits)) - labels


def correct(data, rng):
    logits, labels = data
    flips = rng.random(len(labels)) < 1 / (1 + np.exp(EPSILON))
    return gradients(logits, np.where(flips, 1 - labels, labels))


def broken(data, rng):
    logits, labels = data
    return gradients(logits, labels)


claim = Claim(epsilon=EPSILON, unit="label", observer="the party without labels, which receives the gradients")
logits = np.array([0.3, -1.0, 2.0])
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=((logits, np.array([1, 0, 1])), (logits, np.array([0, 0, 1]))),
    source="https://github.com/FederatedAI/FATE/issues/2915",
    ideal="the gradient is negative exactly where the label is 1",
    event=lambda released: released[0] < 0,
    proof="the gradients are deterministic functions of the labels",
)
