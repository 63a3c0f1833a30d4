"""A record that changes its class moves the sum of a class by its value, not by the width of the bounds.

Library: diffprivlib==0.6.6.
"""

import fedassay
import numpy as np
from diffprivlib.models import GaussianNB

ROWS = 300


def sum_of_class(moved, rng):  # theta_ and class_count_ are the fitted model
    values, labels = np.full((2 * ROWS, 1), 100.5), np.repeat([0, 1], ROWS)
    labels[0] = int(moved)
    seed = np.random.RandomState(int(rng.integers(2**31)))
    model = GaussianNB(epsilon=1.0, bounds=(100, 101), random_state=seed).fit(values, labels)
    return model.theta_[0, 0] * model.class_count_[0]


claim = fedassay.Claim.stated(epsilon=1.0, unit="sample", adjacency="replace_one")
found = fedassay.audit_mechanism(sum_of_class, claim, inputs=(0, 1), trials=4000)
print(found.line())
bound = int(100 * found.measurement.epsilon_low) / 100
print(f"verdict: {found.verdict}, epsilon >= {bound} at 95 % (claim 1)")
