"""A grid of Flower whose nodes are calls in this process, and an innermost mod for the client apps that it calls.

Apps run as they are. While client apps are made, ``ClientApp.__init__`` and ``ClientApp.train`` are wrapped, so that
the innermost mod is the audit's. Messages need the identity of a run, which Flower does not document.
"""

import copy
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
    from flwr.serverapp import Grid
    from flwr.supercore.run import Run, RunNotRunningException
    from flwr.supercore.task_identity import TaskIdentity
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]
"""A client-side mod of Flower: ``mod(message, context, call_next) -> reply``."""
_SERVER, _RUN = 1, 1
_OLDER_RECORDS = ("fitins.", "evaluateins.")
_OLDER_QUERIES = ("get_parameters", "get_properties")


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


class ProcessGrid:
    """A grid that calls a client app in this process, one node after the other.

    Args:
        app: the client app.
        nodes: their number; their identifiers are 1 to ``nodes``.
        run_config: of the run, for server and clients.
        answered: ``answered(asked, reply) -> reply or None``; None is a reply that never arrives.
        called: context of one call of a node, which is its argument.
        failed: called with an exception of a client, before it passes through.
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
        failed: Callable[[Exception], None] = lambda _: None,
        copied: Callable[[Any], Any] = copy.deepcopy,
    ) -> None:
        self._copied = copied
        self._app, self._nodes, self._answered, self._called, self._failed = app, nodes, answered, called, failed
        self._contexts = {
            node: context(run_config, node, {"partition-id": node - 1, "num-partitions": nodes})
            for node in range(1, nodes + 1)
        }
        self._sent = 0
        self._waiting: dict[str, Any] = {}
        self._closed = False
        # Servers of the older interface send from threads, and all clients draw from the same global generators.
        self._one_call = threading.Lock()

    @property
    def run(self) -> Any:
        """A run without a SuperLink, for apps of the older interface."""
        return Run.create_empty(_RUN)

    def set_run(self, run: Any) -> None:
        """Nothing to set: there is one run."""

    def get_node_ids(self) -> list[int]:
        """Return the identifiers of all nodes. Raises Flower's RunNotRunningException after ``close``."""
        if self._closed:
            raise RunNotRunningException
        return list(self._contexts)

    def close(self) -> None:
        """End the run, so that a thread of the older interface that still asks for nodes ends too."""
        self._closed = True

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        names = []
        for message in messages:
            with self._one_call:
                self._sent += 1
                names.append(str(self._sent))
                try:
                    self._waiting[names[-1]] = self._reply(message, names[-1])
                except Exception as error:
                    self._failed(error)
                    raise
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
        _refuse_mixed(self._app, message)
        with self._called(node):
            # Copied in both directions: apps and strategies change records in place, which real messages do not share.
            reply = self._app(self._copied(message), self._contexts[node])
        return self._answered(message, self._copied(reply))


Grid.register(ProcessGrid)


def _refuse_mixed(app: Any, message: Any) -> None:
    """Raise TypeError where server and client have different interfaces, and would not read each other's records."""
    if not isinstance(app, ClientApp) or not message.has_content():
        return
    names = list(message.content.array_records)
    older = any(name.startswith(_OLDER_RECORDS) for name in names)
    older |= message.metadata.message_type in _OLDER_QUERIES
    of_client_fn = app._call is not None
    if older != of_client_fn and (older or names):
        interfaces = ("the older one (server_fn)", "the newer one (@app.train)")
        server, client = interfaces if older else ("the newer one (@app.main)", "the older one (client_fn)")
        raise TypeError(
            f"both apps must have one interface of Flower, got a server app of {server} and a client app of {client}"
        )


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


def is_masked(reply: Any) -> bool:
    """Whether a reply is one of secure aggregation, which shows no update."""
    return bool(reply.has_content()) and RECORD_KEY_CONFIGS in reply.content


def masked_examples(reply: Any) -> float:
    """Return the number of examples that a reply of secure aggregation shows; 0 in the stages without an update."""
    record = reply.content.metric_records.get("fitres.num_examples", {})
    return float(record.get("num_examples", 0))


def arrays_like(record: Any, arrays: list[Any]) -> Any:
    """Return a record of these arrays, ``[(shape)]``, under the names of another one."""
    return ArrayRecord({name: Array(array) for name, array in zip(record.keys(), arrays, strict=True)})
