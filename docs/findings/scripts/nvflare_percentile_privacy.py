"""One NaN makes the percentile NaN, and then nothing is withheld.

Library: nvflare==2.9.0.
"""

import logging

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

logging.disable(logging.CRITICAL)


def shared(last):  # how many of 100 values are sent as 90 % of them must be withheld
    values = np.append(np.linspace(0.001, 0.009, 99), last)
    dxo = DXO(DataKind.WEIGHT_DIFF, data={"w": values})
    out = PercentilePrivacy(percentile=90, gamma=0.01).process_dxo(dxo, Shareable(), FLContext()).data["w"]
    return int(np.sum(out != 0)), out


print("values sent:", shared(0.02)[0], "with a NaN:", shared(np.nan)[0])
print("0.02 with gamma 0.01 is sent as", shared(0.02)[1][-1], "and 0.009, below gamma, is sent as", shared(0.02)[1][-2])
assert shared(np.nan)[0] == 100
print("verdict: no claim of DP; REFUTED as described: with one NaN all 100 values are sent, instead of 10")
