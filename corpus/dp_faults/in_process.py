"""Runs the apps of Flower by plain calls, one node after the other, for the releases of the kind ``flower``."""

import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity

SERVER, RUN = 0, 1


class Calls:
    """A grid whose nodes 1, 2, ... are called at once; keeps all that the server sends and receives.

    Args:
        client_app: of all nodes; node n has the configuration ``partition-id`` n - 1.
        nodes: their number.
    """

    def __init__(self, client_app: ClientApp, nodes: int) -> None:
        self.client_app = client_app
        self.contexts = {node: _context(node, {"partition-id": node - 1}) for node in range(1, nodes + 1)}
        self.sent: list[Message] = []
        self.received: list[Message] = []

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(len(self.sent))
            self.sent.append(message)
            replies.append(self.client_app(message, self.contexts[message.metadata.dst_node_id]))
        self.received += replies
        return replies


Grid.register(Calls)


def run(server_app: ServerApp, client_app: ClientApp, nodes: int, seed: int) -> tuple[Calls, Context]:
    """Run both apps; return the grid, and the server's context with its state."""
    grid, server = Calls(client_app, nodes), _context(SERVER, {})
    with _seeded(seed), _identified():
        server_app(grid, server)
    return grid, server


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, from which Flower draws noise and nodes, and put them back."""
    held = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(held[0])  # noqa: NPY002
        random.setstate(held[1])


@contextmanager
def _identified() -> Iterator[None]:
    """Give messages the identity of a run, and silence Flower's log."""
    names = ("_task_id", "_run_id", "_node_id")
    held, logger = {name: getattr(TaskIdentity, name) for name in names}, logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    for name, number in zip(names, (RUN, RUN, SERVER), strict=True):
        setattr(TaskIdentity, name, number)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in held.items():
            setattr(TaskIdentity, name, value)


def _context(node: int, config: dict[str, Any]) -> Context:
    return Context(RUN, node, config, RecordDict(), {})
