"""The mean of the values that are no NaN gets noise for the mean of all.

Library: diffprivlib==0.6.6.
"""

import fedassay
import numpy as np
from diffprivlib import tools


def mean(value, rng):  # 1 value and 99 NaN
    data = np.append(np.full(99, np.nan), value)
    return tools.nanmean(data, epsilon=1.0, bounds=(0, 1), random_state=int(rng.integers(2**31)))


claim = fedassay.Claim.stated(epsilon=1.0, unit="sample", adjacency="replace_one")
found = fedassay.audit_mechanism(mean, claim, inputs=(0.0, 1.0), trials=5000)
print(found.line())
bound = int(100 * found.measurement.epsilon_low) / 100
print("noise scale 1/100, the mean moves by 1: epsilon 100 by calculation")
print(f"verdict: {found.verdict}, epsilon >= {bound} at 95 % (claim 1; 100 by calculation)")
