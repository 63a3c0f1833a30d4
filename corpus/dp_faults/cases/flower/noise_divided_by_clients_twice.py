"""The noise of the mean is divided by the number of clients twice.

Two rounds of all clients with noise multiplier 3: epsilon 1.27 at delta 1e-3.
"""

from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from dp_faults import Case, Claim, Program
from dp_faults.in_process import run

ROUNDS, CLIENTS, NOISE, CLIP = 2, 20, 3.0, 1.0


class Private(FedAvg):
    """Clips updates, and adds noise to their mean."""

    def __init__(self, scale, seed):
        super().__init__(fraction_evaluate=0.0)
        self.scale, self.rng = scale, np.random.default_rng(seed)

    def configure_train(self, server_round, arrays, config, grid):
        self.round, self.before = server_round, arrays["w"].numpy()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        moves = [reply.content["arrays"]["w"].numpy() - self.before for reply in replies]
        move = np.mean([shortened(one) for one in moves], axis=0) + self.scale * self.rng.normal(size=3)
        return ArrayRecord({"w": Array(self.before + move)}), MetricRecord()


def shortened(move):
    return move * min(1.0, CLIP / max(np.linalg.norm(move), 1e-12))


def apps(data, seed, scale):
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
        result = Private(scale, seed).start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, scale):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, scale), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(scale):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=1.27, delta=1e-3, unit="client", adjacency="zero_out", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, scale=scale),
        parts={"flower": {"apps": partial(apps, scale=scale), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 10]
CASE = Case(
    fault="noise",
    correct=program(NOISE * CLIP / CLIENTS),
    broken=program(NOISE * CLIP / CLIENTS**2),
    neighbours=(data, data * (np.arange(len(data)) > 0)[:, None]),
    source="https://github.com/wenzhu23333/Differential-Privacy-Based-Federated-Learning/issues/14",
    ideal="the noise is a twentieth of what is stated",
    event=lambda model: model[2] > 0.05,
    proof="the client moves the model by .1 in two rounds, and the noise by .011",
    trials=80,
)
