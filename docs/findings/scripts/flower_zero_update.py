"""An update of length 0 ends the round with ZeroDivisionError.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

ended = {}
for first in (0.0, 1e-9):
    wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 2)
    try:
        released(wrapper, [np.zeros(2)], [reply([np.full(2, first)]), reply([np.ones(2)])])
        ended[first] = "released"
    except ZeroDivisionError as error:
        ended[first] = type(error).__name__
print(ended)
assert ended == {0.0: "ZeroDivisionError", 1e-9: "released"}
print("verdict: REFUTED for updates of length 0: whether the round fails shows the update")
