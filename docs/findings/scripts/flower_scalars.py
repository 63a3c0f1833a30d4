"""Arrays of dimension 0 become numpy numbers, which are not changed in place: no clip, and in LocalDpMod no noise.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply, through
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

before = [np.array(0.0), np.zeros(3)]  # a scale such as torch.nn.Parameter(torch.tensor(1.0)), and a layer
after = [np.array(1000.0), np.zeros(3)]
local = {float(through(LocalDpMod(1.0, 1.0, 1.0, 1e-5), before, after)[0][0]) for _ in range(50)}
clipped = float(through(fixedclipping_mod, before, after)[0][0])
wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1.0, 2)
quiet = [np.array(1e-9), np.full(3, 1e-9)]
central = float(released(wrapper, before, [reply(after), reply(quiet)])[0])
print(f"LocalDpMod, 50 calls: {local}; fixedclipping_mod: {clipped}; average of two by the wrapper: {central:.0f}")
assert local == {1000.0}
assert clipped == 1000.0
assert central > 499
print("verdict: REFUTED for arrays of dimension 0: no clip, and no noise in LocalDpMod")
