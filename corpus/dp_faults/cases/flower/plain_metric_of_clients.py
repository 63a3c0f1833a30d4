"""Each client reports the mean of its data as a metric, and the server publishes the mean of these.

The correct version reports the number of its local steps. Three rounds of all clients with noise multiplier 4,
which is 2 under replace-one: epsilon 2.63 at delta 1e-3.
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


def local_steps(update):
    return 1.0


def mean_of_data(update):
    return float(update.mean())


def private():
    plain = FedAvg(fraction_evaluate=0.0)
    return DifferentialPrivacyServerSideFixedClipping(plain, NOISE, CLIP, CLIENTS)


def apps(data, seed, metric):
    client = ClientApp()

    @client.train()
    def train(message, context):
        update = data[context.node_config["partition-id"]]
        model = message.content["arrays"]["w"].numpy() + update
        content = {
            "arrays": ArrayRecord({"w": Array(model)}),
            "metrics": MetricRecord({"num-examples": 1, "metric": metric(update)}),
        }
        return Message(RecordDict(content), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid, context):
        start = ArrayRecord({"w": Array(np.zeros(3))})
        result = private().start(grid, start, num_rounds=ROUNDS)
        context.state["arrays"] = result.arrays
        context.state["metrics"] = result.train_metrics_clientapp[ROUNDS]

    return server, client


def release(data, rng, metric):
    seed = int(rng.integers(2**31))
    _, context = run(*apps(data, seed, metric), len(data), seed)
    return np.append(context.state["arrays"]["w"].numpy(), context.state["metrics"]["metric"])


def program(metric):
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "rounds": ROUNDS}
    claim = Claim(
        epsilon=2.63,
        delta=1e-3,
        unit="client",
        adjacency="replace_one",
        observer="whoever receives the last model and its metric",
    )
    return Program(
        claim=claim,
        release=partial(release, metric=metric),
        parts={"flower": {"apps": partial(apps, metric=metric), **stated}},
    )


data = np.random.default_rng(1).normal(size=(CLIENTS, 3)) * [1, 1, 0]
data[0] = [0, 0, 30]
CASE = Case(
    fault="protocol",
    correct=program(local_steps),
    broken=program(mean_of_data),
    neighbours=(data, np.vstack([[1, 0, 0], data[1:]])),
    source="https://flower.ai/docs/framework/how-to-aggregate-evaluation-results.html",
    ideal="the published metric is a function of clients' data that nothing protects",
    event=lambda seen: seen[3] > 1 + 1e-6,
    proof="the published mean is 1.7 with the client and at most 1 in size without it",
    trials=150,
)
