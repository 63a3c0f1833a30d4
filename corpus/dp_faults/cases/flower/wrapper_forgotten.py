"""The strategy is not wrapped into the one that clips and adds noise.

Three rounds of all clients with noise multiplier 4, which is 2 under replace-one: epsilon 2.63 at delta 1e-3.
"""

from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from dp_faults import Case, Claim, Program
from dp_faults.in_process import run

ROUNDS, CLIENTS, NOISE, CLIP = 3, 6, 4.0, 1.0


def wrapped():
    plain = FedAvg(fraction_evaluate=0.0)
    return DifferentialPrivacyServerSideFixedClipping(plain, NOISE, CLIP, CLIENTS)


def plain():
    return FedAvg(fraction_evaluate=0.0)


def apps(data, seed, strategy):
    client = ClientApp()

    @client.train()
    def train(message, context):
        update = data[context.node_config["partition-id"]]
        model = message.content["arrays"]["w"].numpy() + update
        content = {"arrays": ArrayRecord({"w": Array(model)}), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid, context):
        start = ArrayRecord({"w": Array(np.zeros(3))})
        result = strategy().start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, strategy):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, strategy), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(strategy):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=2.63, delta=1e-3, unit="client", adjacency="replace_one", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, strategy=strategy),
        parts={"flower": {"apps": partial(apps, strategy=strategy), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 30]
CASE = Case(
    fault="noise",
    correct=program(wrapped),
    broken=program(plain),
    neighbours=(data, np.vstack([[1, 0, 0], data[1:]])),
    source="https://flower.ai/docs/framework/how-to-use-differential-privacy.html",
    ideal="updates are neither clipped nor noised",
    event=lambda model: model[2] > 10,
    proof="the last number is 0 without the client and 15 with it",
    trials=150,
)
