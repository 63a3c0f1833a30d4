"""The noise of a round comes from a generator that is seeded with the number of the round.

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


def of_the_run(rng, number):
    return rng.normal(size=3)


def of_the_round(rng, number):
    return np.random.default_rng(number).normal(size=3)


class Private(FedAvg):
    """Clips updates, and adds noise to their mean."""

    def __init__(self, draw, seed):
        super().__init__(fraction_evaluate=0.0)
        self.draw, self.rng = draw, np.random.default_rng(seed)

    def configure_train(self, server_round, arrays, config, grid):
        self.round, self.before = server_round, arrays["w"].numpy()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        moves = [reply.content["arrays"]["w"].numpy() - self.before for reply in replies]
        move = np.mean([shortened(one) for one in moves], axis=0) + NOISE * CLIP / CLIENTS * self.draw(
            self.rng, self.round
        )
        return ArrayRecord({"w": Array(self.before + move)}), MetricRecord()


def shortened(move):
    return move * min(1.0, CLIP / max(np.linalg.norm(move), 1e-12))


def apps(data, seed, draw):
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
        result = Private(draw, seed).start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, draw):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, draw), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(draw):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=1.27, delta=1e-3, unit="client", adjacency="zero_out", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, draw=draw),
        parts={"flower": {"apps": partial(apps, draw=draw), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 10]
KNOWN = NOISE * CLIP / CLIENTS * sum(of_the_round(None, number)[2] for number in (1, 2))
CASE = Case(
    fault="noise",
    correct=program(of_the_run),
    broken=program(of_the_round),
    neighbours=(data, data * (np.arange(len(data)) > 0)[:, None]),
    source="own",
    ideal="everybody can draw the noise again and subtract it",
    event=lambda model: abs(model[2] - KNOWN - 0.25) < 1e-9,
    proof="without its known noise the last number is .25 with the client and 0 without it",
    trials=80,
)
