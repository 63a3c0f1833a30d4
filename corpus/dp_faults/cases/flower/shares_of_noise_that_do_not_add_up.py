"""Each of 64 clients adds a 64th of the noise that the sum needs, where an eighth is right because variances add up.

One round of all clients with noise multiplier 2: epsilon 1.36 at delta 1e-3 for the mean.
"""

from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from dp_faults import Case, Claim, Program
from dp_faults.in_process import run

ROUNDS, CLIENTS, NOISE, CLIP = 1, 64, 2.0, 1.0


def shortened(move):
    return move * min(1.0, CLIP / max(np.linalg.norm(move), 1e-12))


def apps(data, seed, share):
    rng = np.random.default_rng(seed)
    client = ClientApp()

    @client.train()
    def train(message, context):
        update = data[context.node_config["partition-id"]]
        noised = shortened(update) + share * NOISE * CLIP * rng.normal(size=3)
        model = message.content["arrays"]["w"].numpy() + noised
        content = {"arrays": ArrayRecord({"w": Array(model)}), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid, context):
        start = ArrayRecord({"w": Array(np.zeros(3))})
        result = FedAvg(fraction_evaluate=0.0).start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, share):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, share), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(share):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=1.36, delta=1e-3, unit="client", adjacency="zero_out", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, share=share),
        parts={"flower": {"apps": partial(apps, share=share), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 10]
CASE = Case(
    fault="noise",
    correct=program(CLIENTS**-0.5),
    broken=program(1 / CLIENTS),
    neighbours=(data, data * (np.arange(len(data)) > 0)[:, None]),
    source="https://github.com/ipc-lab/private-ml-for-health/issues/2",
    ideal="the noise of the sum is an eighth of what is stated",
    event=lambda model: CLIENTS * model[2] > 0.5,
    proof="the client moves the sum by 1, and the noise by .25: a Gaussian mechanism with mu 4",
    trials=80,
)
