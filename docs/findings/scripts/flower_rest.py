"""Parts of Flower for which no finding is known.

Library: flwr==1.42.0.
"""

import logging

import fedassay
import numpy as np
from flower_round import released, reply, through
from flwr.clientapp.mod import fixedclipping_mod
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.compat.client.dpfedavg_numpy_client import DPFedAvgNumPyClient
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedProx,
)
from flwr.supercore.privacy_accounting import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

logging.disable(logging.CRITICAL)
SIZE, CLIENTS = 10_000, 10


def multiplier(kind, strategy, examples, send):  # noise over sensitivity: one update of length 100, others quiet
    quiet, long = [np.full(SIZE, 1e-9)], [np.full(SIZE, 1.0)]
    sums = []
    for first in (quiet, long):
        replies = [reply(send(one), examples) for one in [first] + [quiet] * (CLIENTS - 1)]
        sums.append(released(kind(strategy(), 0.0, 1.0, CLIENTS), [np.zeros(SIZE)], replies)[0])
    np.random.seed(0)
    replies = [reply(send(quiet), examples) for _ in range(CLIENTS)]
    noise = released(kind(strategy(), 1.0, 1.0, CLIENTS), [np.zeros(SIZE)], replies)[0].std()
    return noise / np.linalg.norm(sums[1] - sums[0])


def clipped(update):
    return through(fixedclipping_mod, [np.zeros(SIZE)], update)[0]


server, client = DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping
for name, value in (
    ("ServerSideFixedClipping, FedAvg, equal examples", multiplier(server, FedAvg, 7, lambda update: update)),
    ("ClientSideFixedClipping, fixedclipping_mod, equal examples", multiplier(client, FedAvg, 7, clipped)),
    ("ServerSideFixedClipping, FedProx, equal examples", multiplier(server, lambda: FedProx(proximal_mu=0.1), 7, list)),
):
    print(f"verdict: {name}: effective noise multiplier {value:.2f} of the stated one")

config = PrivacyConfig(1e-5, 10, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
refused = []
for examples in ((7, 7), (7, 8)):
    wrapper = server(FedAvg(), 1.0, 1.0, 2, accountant=RdpAccountant(config))
    try:
        released(wrapper, [np.zeros(1)], [reply([np.full(1, 1e-9)], number) for number in examples])
        refused.append(False)
    except ValueError:
        refused.append(True)
spent = wrapper.accountant

spent.compose(GaussianPrivacyEvent(1.0, 10, 10), 10)
exact = fedassay.Claim.stated(mu=np.sqrt(10), delta=1e-5).epsilon
stated = spent.get_epsilon(1e-5)
right = refused == [False, True]
print(f"verdict: accountant: unequal examples refused {right}, epsilon {stated:.2f} (exact {exact:.2f})")


class Trained:
    def fit(self, parameters, config):
        return [np.full(SIZE, 1.0)], 7, {}


sent, _, metrics = DPFedAvgNumPyClient(Trained()).fit(
    [np.zeros(SIZE)], {"dpfedavg_clip_norm": 1.0, "dpfedavg_adaptive_clip_enabled": True}
)
length, bit = np.linalg.norm(sent[0]), metrics["dpfedavg_norm_bit"]
print(f"verdict: DPFedAvgNumPyClient (deprecated): norm after clipping {length:.3f}, bit {bit}")

np.random.seed(0)
values = [np.array([-20.0, -8.0, -0.3, 0.0, 0.3, 8.0, 20.0])]
mean = np.mean([dequantize(quantize(values, 8.0, 1 << 16), 8.0, 1 << 16)[0] for _ in range(2000)], axis=0)
error = np.abs(mean - np.clip(values[0], -8, 8)).max()
print(f"verdict: SecAgg+ quantization: unbiased within {error:.0e}, range -8 to 8; no noise, no DP")
