"""A norm that is NaN is not greater than the bound, so nothing is clipped.

Library: pfl==0.6.0.
"""

import numpy as np
from pfl.internal.ops import numpy_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.stats import MappedVectorStatistics

set_framework_module(numpy_ops)

for mechanism in (GaussianMechanism(1.0, 1.0), LaplaceMechanism(1.0, 1.0)):
    update = MappedVectorStatistics({"weight": np.array([1e6, 0.0]), "bias": np.array([np.nan])})
    clipped, _ = mechanism.constrain_sensitivity(update)
    print(type(mechanism).__name__, "passes", clipped["weight"])
    assert clipped["weight"][0] == 1e6
print("verdict: REFUTED for updates with NaN: all other coordinates pass unclipped")
