"""Apps of Flower's older interface on made-up updates, equal to those of ``flower_apps``."""

import numpy as np
import torch
from flower_apps import CLIENTS, CLIP, NOISE
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.compat.server import ServerAppComponents
from flwr.server import ServerConfig
from flwr.server import strategy as older
from flwr.serverapp import ServerApp

SHAPES = ((40, 5), (5,))


def ones():
    return [np.ones(shape) for shape in SHAPES]


def average(kind=older.FedAvg, **options):
    """A strategy that leaves evaluation out and has the model."""
    options = {"initial_parameters": ndarrays_to_parameters(ones())} | options
    return kind(fraction_evaluate=0.0, **options)


def fixed(kind=older.DifferentialPrivacyServerSideFixedClipping, noise=NOISE, inner=None):
    return kind(inner or average(), noise, CLIP, CLIENTS)


def server(make_strategy=fixed, rounds=4):
    """A function that makes a new server app of a ``server_fn``."""

    def make():
        def server_fn(context):
            return ServerAppComponents(strategy=make_strategy(), config=ServerConfig(num_rounds=rounds))

        return ServerApp(server_fn=server_fn)

    return make


class Client(NumPyClient):
    """Adds Gaussian numbers to the model."""

    def __init__(self, examples, length):
        self.examples, self.length = examples, length

    def get_parameters(self, config):
        return ones()

    def fit(self, parameters, config):
        moved = [one + self.length * torch.randn(one.shape).numpy() for one in parameters]
        return moved, self.examples, {}


def client(mods=(), examples=lambda node: 1, length=1.0):
    """A function that makes a new client app of a ``client_fn``."""

    def make():
        def client_fn(context):
            return Client(examples(context.node_id), length).to_client()

        return ClientApp(client_fn=client_fn, mods=list(mods))

    return make
