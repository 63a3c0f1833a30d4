"""Flower apps on made-up updates: ten clients, a model of two arrays, any strategy and mods."""

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as flower
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

CLIENTS, CLIP, NOISE = 10, 0.5, 1.0
SHAPES = {"weight": (40, 5), "bias": (5,)}


def fixed(inner=None, clients=CLIENTS, noise=NOISE, **options):
    return flower.DifferentialPrivacyServerSideFixedClipping(inner or quiet(), noise, CLIP, clients, **options)


def quiet(kind=None, **options):
    """A strategy that leaves evaluation out."""
    return (kind or flower.FedAvg)(fraction_evaluate=0.0, **options)


def client_side(noise=NOISE):
    return flower.DifferentialPrivacyClientSideFixedClipping(quiet(), noise, CLIP, CLIENTS)


def accounted():
    config = PrivacyConfig(
        target_delta=1e-4,
        population_size=CLIENTS,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
    )
    return fixed(accountant=RdpAccountant(config))


def server(make_strategy=fixed, rounds=4, shapes=None, dtype=np.float64):
    """A function that makes a new server app."""

    def make():
        app = ServerApp()

        @app.main()
        def main(grid, context):
            arrays = {name: Array(np.ones(shape, dtype)) for name, shape in (shapes or SHAPES).items()}
            make_strategy().start(grid, ArrayRecord(arrays), num_rounds=rounds)

        return app

    return make


def client(mods=(), examples=lambda node: 1, length=1.0):
    """A function that makes a new client app, whose nodes add Gaussian numbers to the model."""

    def make():
        app = ClientApp(mods=list(mods))

        @app.train()
        def train(message, context):
            arrays = message.content["arrays"]
            moved = {
                name: Array(np.asarray(array.numpy() + length * torch.randn(array.shape).numpy()).astype(array.dtype))
                for name, array in arrays.items()
            }
            metrics = MetricRecord({"num-examples": examples(context.node_id)})
            return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

        return app

    return make
