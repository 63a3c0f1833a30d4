"""The mod for local differential privacy gets a sensitivity of 1e-4 beside a clip norm of 1.

The correct sensitivity under replace-one is 2. One report, epsilon .9 at delta 1e-3 by the classic Gaussian mechanism.
"""

from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from dp_faults import Case, Claim, Program
from dp_faults.in_process import run

ROUNDS, CLIENTS, CLIP, EPSILON, DELTA = 1, 3, 1.0, 0.9, 0.001


def apps(data, seed, sensitivity):
    client = ClientApp(mods=[LocalDpMod(CLIP, sensitivity, EPSILON, DELTA)])

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
        result = FedAvg(fraction_evaluate=0.0).start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays

    return server, client


def release(data, rng, sensitivity):
    """Return the report of the first client."""
    seed = int(rng.integers(2**31))
    grid, _ = run(*apps(data, seed, sensitivity), len(data), seed)
    (report,) = (one for one in grid.received if one.metadata.src_node_id == 1)
    return report.content["arrays"]["w"].numpy()


def program(sensitivity):
    stated = {"epsilon": EPSILON, "delta": DELTA, "clip_norm": CLIP, "rounds": ROUNDS}
    claim = Claim(
        epsilon=0.9,
        delta=1e-3,
        unit="client",
        adjacency="replace_one",
        observer="the server, which receives each report",
    )
    return Program(
        claim=claim,
        release=partial(release, sensitivity=sensitivity),
        parts={"flower": {"apps": partial(apps, sensitivity=sensitivity), **stated}},
    )


data = 0.1 * np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(2 * CLIP),
    broken=program(1e-4),
    neighbours=(data, np.vstack([[0, 0, -1], data[1:]])),
    source="https://github.com/londonaicentre/FLIP/pull/833",
    ideal="the noise is a ten-thousandth of what the clip norm needs",
    event=lambda report: report[2] > 0,
    proof="the report is 1 or -1 along one axis, beside noise of 4e-4",
    trials=80,
)
