"""The server adds noise to the model that it sends to clients, and keeps and publishes the one without.

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

ROUNDS, CLIENTS, NOISE, CLIP = 2, 8, 3.0, 1.0


class Private(FedAvg):
    """Clips updates; adds noise to their mean, or to the model that is sent."""

    def __init__(self, sent, seed):
        super().__init__(fraction_evaluate=0.0)
        self.sent, self.rng = sent, np.random.default_rng(seed)

    def noise(self):
        return NOISE * CLIP / CLIENTS * self.rng.normal(size=3)

    def configure_train(self, server_round, arrays, config, grid):
        self.plain = arrays["w"].numpy()
        self.before = self.plain + self.sent * self.noise()
        return super().configure_train(server_round, ArrayRecord({"w": Array(self.before)}), config, grid)

    def aggregate_train(self, server_round, replies):
        moves = [reply.content["arrays"]["w"].numpy() - self.before for reply in replies]
        move = np.mean([shortened(one) for one in moves], axis=0)
        return ArrayRecord({"w": Array(self.plain + move + (not self.sent) * self.noise())}), MetricRecord()


def shortened(move):
    return move * min(1.0, CLIP / max(np.linalg.norm(move), 1e-12))


def apps(data, seed, sent):
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
        result = Private(sent, seed).start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, sent):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, sent), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(sent):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=1.27, delta=1e-3, unit="client", adjacency="zero_out", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, sent=sent),
        parts={"flower": {"apps": partial(apps, sent=sent), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 10]
CASE = Case(
    fault="protocol",
    correct=program(False),
    broken=program(True),
    neighbours=(data, data * (np.arange(len(data)) > 0)[:, None]),
    source="own",
    ideal="the published model has no noise",
    event=lambda model: abs(model[2] - 0.25) < 1e-9,
    proof="the last number is .25 with the client and 0 without it",
    trials=80,
)
