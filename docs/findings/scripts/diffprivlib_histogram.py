"""A histogram with weights gets noise for a weight of 1.

Library: diffprivlib==0.6.6.
"""

import fedassay
from diffprivlib import tools


def count(rows, rng):  # none or one row, of weight 10
    counts, _ = tools.histogram(
        [0.5] * int(rows),
        epsilon=1.0,
        bins=1,
        range=(0, 1),
        weights=[10] * int(rows),
        random_state=int(rng.integers(2**31)),
    )
    return counts[0]


claim = fedassay.Claim.stated(epsilon=1.0, unit="sample", adjacency="add_remove")
found = fedassay.audit_mechanism(count, claim, inputs=(0, 1), trials=5000)
print(found.line())
bound = int(100 * found.measurement.epsilon_low) / 100
print(f"verdict: {found.verdict}, epsilon >= {bound} at 95 % (claim 1; 10 by calculation)")
