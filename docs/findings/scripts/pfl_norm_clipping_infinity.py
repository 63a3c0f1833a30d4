"""With NumPy, norms of infinite or odd order take values with their sign.

Library: pfl==0.6.0.
"""

import numpy as np
from pfl.internal.ops import numpy_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.privacy_mechanism import NormClippingOnly
from pfl.stats import MappedVectorStatistics

set_framework_module(numpy_ops)

for order in (np.inf, 3):
    update = MappedVectorStatistics({"weight": np.array([-1e6, 0.5])})
    clipped, _ = NormClippingOnly(order, 1.0).constrain_sensitivity(update)
    print("order", order, "bound 1, passes", clipped["weight"])
    assert clipped["weight"][0] == -1e6
print("verdict: REFUTED with NumPy for orders inf and 3: negative values pass unclipped")
