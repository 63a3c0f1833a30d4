"""All parts of a joint mechanism draw from one seed, so parts of one shape get the same noise.

Library: pfl==0.6.0.
"""

import numpy as np
from pfl.internal.ops import numpy_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.joint_mechanism import JointMechanism
from pfl.stats import MappedVectorStatistics

set_framework_module(numpy_ops)

parts = {"first": (GaussianMechanism(1.0, 5.0), ["a"]), "second": (GaussianMechanism(1.0, 5.0), ["b"])}
sums = MappedVectorStatistics({"a": np.array([1.0, 0.0, 3.0]), "b": np.array([0.5, 0.5, 0.5])})
noised, _ = JointMechanism(parts).add_noise(sums, cohort_size=10, seed=7)  # pfl passes the seed of the round
print("noised a:", noised["a"], "noised b:", noised["b"])
print("difference of the two releases:", noised["a"] - noised["b"], "true:", sums["a"] - sums["b"])
assert np.allclose(noised["a"] - noised["b"], sums["a"] - sums["b"])
print("verdict: REFUTED, epsilon infinite: the difference of two parts is released without noise")
