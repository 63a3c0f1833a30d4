"""The noise of the embeddings is drawn once for each record and kept for both epochs, while the weights change.

The claim covers both epochs. Weights are known to the receiver.
"""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 1.5 * np.sqrt(2)
WEIGHTS = (1.0, 0.25)


def embeddings(features):
    return np.column_stack([weight * np.clip(features, 0, 1) for weight in WEIGHTS])


def correct(features, rng):
    return embeddings(features) + rng.normal(scale=SIGMA, size=(len(features), 2))


def broken(features, rng):
    return embeddings(features) + rng.normal(scale=SIGMA, size=(len(features), 1))


claim = Claim(epsilon=2, delta=1e-3, observer="the party with labels, which receives the embeddings of two epochs")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 0.5]), np.array([1.0, 0.5])),
    source="own",
    ideal="the difference of two epochs has no noise: it is the feature times the change of the weight",
    event=lambda released: released[0, 0] - released[0, 1] > 0.4,
    proof="the difference is exact: 0 or 0.75, up to rounding",
)
