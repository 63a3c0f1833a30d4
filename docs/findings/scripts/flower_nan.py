"""A norm that is NaN gives the clip factor 1, so one NaN lets all other values pass.

Library: flwr==1.42.0.
"""

import numpy as np
from flower_round import released, reply, through
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

before, bad = [np.zeros(2), np.zeros(1)], [np.array([1e6, 0.0]), np.array([np.nan])]
passed = {}
for wrapper in (
    DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1.0, 2),
    DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.0, 2, initial_clipping_norm=1.0),
):
    quiet = [np.full(2, 1e-9), np.full(1, 1e-9)]
    passed[type(wrapper).__name__] = released(wrapper, before, [reply(bad), reply(quiet)])[0][0]
for mod in (fixedclipping_mod, adaptiveclipping_mod, LocalDpMod(1.0, 1.0, 1.0, 1e-5)):
    passed[getattr(mod, "__name__", "LocalDpMod")] = through(mod, before, bad)[0][0][0]
print("first value released, clip norm 1:", {name: round(float(value)) for name, value in passed.items()})
assert all(value > 4e5 for value in passed.values())
print("verdict: REFUTED for updates with NaN: all other values pass unclipped, in both wrappers and all mods")
