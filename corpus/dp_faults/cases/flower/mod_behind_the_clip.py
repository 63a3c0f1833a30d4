"""A mod that scales updates acts on the reply after the one that clips, because the first mod is the outermost.

Three rounds of all clients with noise multiplier 4, which is 2 under replace-one: epsilon 2.63 at delta 1e-3.
"""

from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

from dp_faults import Case, Claim, Program
from dp_faults.in_process import run

ROUNDS, CLIENTS, NOISE, CLIP = 3, 6, 4.0, 1.0


def hundredfold(message, context, call_next):
    """Multiply the update of a client by a hundred."""
    before = message.content["arrays"]["w"].numpy()
    reply = call_next(message, context)
    update = reply.content["arrays"]["w"].numpy() - before
    reply.content["arrays"] = ArrayRecord({"w": Array(before + 100 * update)})
    return reply


def apps(data, seed, mods):
    client = ClientApp(mods=mods)

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
        result = DifferentialPrivacyClientSideFixedClipping(FedAvg(fraction_evaluate=0.0), NOISE, CLIP, CLIENTS).start(
            grid, start, num_rounds=ROUNDS
        )
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, mods):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, mods), len(data), seed)
    return context.state["arrays"]["w"].numpy()


def program(mods):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=2.63, delta=1e-3, unit="client", adjacency="replace_one", observer="whoever receives the last model"
    )
    return Program(
        claim=claim,
        release=partial(release, mods=mods),
        parts={"flower": {"apps": partial(apps, mods=mods), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 1]
CASE = Case(
    fault="clip",
    correct=program([fixedclipping_mod, hundredfold]),
    broken=program([hundredfold, fixedclipping_mod]),
    neighbours=(data, np.vstack([[1, 0, 0], data[1:]])),
    source="https://github.com/flwrlabs/flower/pull/2893",
    ideal="what the server receives is a hundred clip norms long",
    event=lambda model: model[2] > 20,
    proof="the client moves the model by 50 in three rounds, and the noise by 1.2",
    trials=150,
)
