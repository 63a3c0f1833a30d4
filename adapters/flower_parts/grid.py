"""A grid of Flower whose nodes are calls in this process; the only file that uses what Flower does not document.

Apps run as they are. While they are made and run, two documented methods of Flower are wrapped (``ClientApp.train``,
``Strategy.start``), so that the innermost mod and the strategy are the audit's to see.
"""

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from flwr.supercore.task_identity import TaskIdentity
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]
"""A client-side mod of Flower: ``mod(message, context, call_next) -> reply``."""
_SERVER, _RUN = 1, 1


@contextmanager
def in_process() -> Iterator[None]:
    """Give messages the identity of a run inside the context, and silence Flower's log."""
    names = ("_task_id", "_run_id", "_node_id")
    held = {name: getattr(TaskIdentity, name) for name in names}
    logger = logging.getLogger("flwr")
    level = logger.level
    try:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN, _SERVER
        logger.setLevel(logging.CRITICAL)
        yield
    finally:
        logger.setLevel(level)
        for name, value in held.items():
            setattr(TaskIdentity, name, value)


@contextmanager
def innermost(mod: Mod, seen: Callable[[Any], None]) -> Iterator[None]:
    """Place ``mod`` next to every training function that is registered inside the context, below all other mods.

    ``seen``: called with each of the app's own mods. An app that was made before keeps the mods that it has.
    """
    make, train = ClientApp.__init__, ClientApp.train

    def making(app: Any, client_fn: Any = None, mods: Any = None) -> None:
        for one in mods or ():
            seen(one)
        make(app, client_fn, mods if client_fn is None else [*(mods or ()), mod])

    def training(app: Any, action: str = "default", *, mods: Any = None) -> Any:
        for one in mods or ():
            seen(one)
        return train(app, action, mods=[*(mods or ()), mod])

    try:
        ClientApp.__init__, ClientApp.train = making, training
        yield
    finally:
        ClientApp.__init__, ClientApp.train = make, train


@contextmanager
def starting(found: Callable[[Any, Any], None]) -> Iterator[None]:
    """Call ``found(strategy, initial arrays)`` whenever a strategy is started inside the context."""
    start = Strategy.start

    def started(strategy: Any, grid: Any, initial_arrays: Any, *rest: Any, **options: Any) -> Any:
        found(strategy, initial_arrays)
        return start(strategy, grid, initial_arrays, *rest, **options)

    try:
        Strategy.start = started
        yield
    finally:
        Strategy.start = start


class ProcessGrid:
    """A grid that calls a client app in this process, one node after the other.

    Args:
        app: the client app.
        nodes: their number; their identifiers are 1 to ``nodes``.
        run_config: of the run, for server and clients.
        answered: ``answered(asked, reply) -> reply or None``; None is a reply that never arrives.
        called: context of one call of a node, which is its argument.
        copied: copies a message; the identity where nothing keeps or changes them.
    """

    def __init__(
        self,
        app: Any,
        nodes: int,
        *,
        run_config: Mapping[str, Any],
        answered: Callable[[Any, Any], Any],
        called: Callable[[int], Any],
        copied: Callable[[Any], Any] = copy.deepcopy,
    ) -> None:
        self._copied = copied
        self._app, self._nodes, self._answered, self._called = app, nodes, answered, called
        self._contexts = {
            node: context(run_config, node, {"partition-id": node - 1, "num-partitions": nodes})
            for node in range(1, nodes + 1)
        }
        self._sent = 0
        self._waiting: dict[str, Any] = {}

    @property
    def run(self) -> Any:
        """Raise TypeError: apps of the older interface ask for the run of a SuperLink."""
        raise TypeError(
            "a grid in one process has no run of a SuperLink: give a ServerApp with a main function that starts a "
            "strategy of flwr.serverapp.strategy; apps of the older interface (server_fn) are not supported"
        )

    def set_run(self, run: Any) -> None:
        """Nothing to set: there is one run."""

    def get_node_ids(self) -> list[int]:
        return list(self._contexts)

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        names = []
        for message in messages:
            self._sent += 1
            names.append(str(self._sent))
            self._waiting[names[-1]] = self._reply(message, names[-1])
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        found = [self._waiting.pop(name, None) for name in message_ids]
        return [one for one in found if one is not None]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Any, name: str) -> Any:
        message.metadata.__dict__["_message_id"] = name
        node = message.metadata.dst_node_id
        if node not in self._contexts:
            raise ValueError(f"messages must go to the nodes 1 to {self._nodes}, got node {node}")
        with self._called(node):
            # Copied in both directions: apps and strategies change records in place, which real messages do not share.
            reply = self._app(self._copied(message), self._contexts[node])
        return self._answered(message, self._copied(reply))


Grid.register(ProcessGrid)


def context(run_config: Mapping[str, Any], node: int = _SERVER, node_config: Mapping[str, Any] | None = None) -> Any:
    """Return a new context of one node, or of the server."""
    return Context(_RUN, node, dict(node_config or {}), RecordDict(), dict(run_config))


def only_arrays(content: Any) -> tuple[str, Any]:
    """Return name and record of the only array record; TypeError where there are several."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise TypeError(f"messages of training must hold one ArrayRecord, got {len(records)}")
    return str(records[0][0]), records[0][1]


def is_training(message: Any) -> bool:
    """Whether a message asks for training."""
    return str(message.metadata.message_type).partition(".")[0] == "train"


def arrays_like(record: Any, arrays: list[Any]) -> Any:
    """Return a record of these arrays, ``[(shape)]``, under the names of another one."""
    return ArrayRecord({name: Array(array) for name, array in zip(record.keys(), arrays, strict=True)})
