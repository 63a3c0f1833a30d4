"""A grid of Flower whose nodes are calls of a client app, in this process or in workers of Ray.

Apps run as they are. While client apps are made, ``ClientApp.__init__`` and ``ClientApp.train`` are wrapped, so that
the innermost mod is the audit's: it keeps the update that a client made, and puts the audit's in its place. Messages
need the identity of a run, which Flower does not document.
"""

import copy
import logging
import math
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..fl.layout import Layout
from ..fl.streams import seeded

try:
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
    from flwr.serverapp import Grid
    from flwr.supercore.run import Run, RunNotRunningException
    from flwr.supercore.task_identity import TaskIdentity
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

_NEEDED = "backend='ray' needs Ray: pip install 'flwr[simulation]'"


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
def innermost(mod: Mod, seen: Callable[[Any], None]) -> Iterator[list[Any]]:
    """Insert ``mod`` directly around every training function that is registered inside the context, below all other
    mods.

    ``seen``: called with each of the app's own mods. An app that was made before keeps the mods that it has; those that
    are made inside the context are in the list.
    """
    make, train, made = ClientApp.__init__, ClientApp.train, list[Any]()

    def making(app: Any, client_fn: Any = None, mods: Any = None) -> None:
        made.append(app)
        for one in mods or ():
            seen(one)
        make(app, client_fn, mods if client_fn is None else [*(mods or ()), mod])

    def training(app: Any, action: str = "default", *, mods: Any = None) -> Any:
        for one in mods or ():
            seen(one)
        return train(app, action, mods=[*(mods or ()), mod])

    try:
        ClientApp.__init__, ClientApp.train = making, training
        yield made
    finally:
        ClientApp.__init__, ClientApp.train = make, train


class LocalClients:
    """A caller of a client app in this process, one node after the other.

    Args:
        app: the client app.
        called: context of one call of a node, which is its argument.
        copied: copies a message; the identity where nothing keeps or changes them.
    """

    def __init__(
        self,
        app: Any,
        *,
        called: Callable[[int], AbstractContextManager[Any]] = lambda _: nullcontext(),
        copied: Callable[[Any], Any] = copy.deepcopy,
    ) -> None:
        self.app, self._called, self._copied = app, called, copied

    def start(self, node: int, message: Any, context: Any) -> tuple[Any, Any]:
        """Call the client app of a node; return its reply and its context."""
        with self._called(node):
            # Copied in both directions: apps and strategies change records in place, which real messages do not share.
            return self._copied(self.app(self._copied(message), context)), context

    def finish(self, started: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the reply and the context of a call."""
        return started

    def cancel(self, started: tuple[Any, Any]) -> None:
        """Do nothing, because the call has already ended."""


@dataclass(kw_only=True)
class InnerMod:
    """A mod of Flower that holds no reference to the server, so that it can be sent to another process.

    Args:
        units: updates of the audit by node, ``(d,)`` in clip norms.
        clip_norm: of the present round; None where no noise is stated, and units stay out.
        made: updates that clients made in the present round by node, ``(d,)``.
        seed: of the generators inside of the training function alone; None leaves them as they are.
        differences: whether clients send differences of models, and not models.
    """

    units: dict[int, Tensor] = field(default_factory=dict)
    seed: int | None = None
    differences: bool = False
    clip_norm: float | None = None
    made: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, message: Any, context: Any, call_next: Any) -> Any:
        """Call the client's function; the reply holds the planted update where the node has one."""
        node = int(context.node_id)
        own = nullcontext() if self.seed is None else seeded(derived_seed(self.seed, node))
        with own:
            reply = call_next(message, context)
        if not is_training(message) or not reply.has_content():
            return reply
        name, made = only_arrays(reply.content)
        _, received = only_arrays(message.content)
        start = zeros_like(received) if self.differences else received
        if node in self.units and self.clip_norm is not None:
            made = added(start, self.units[node] * self.clip_norm)
            reply.content[name] = made
        self.made[node] = flat(made) - flat(start)
        return reply


class RayClients:
    """A caller of a client app in Ray's workers, for all nodes of a round at once.

    Args:
        app: the client app, which cloudpickle must be able to write; each call works on a copy.
        inner: its innermost mod.
        seed_of: the seed of all generators in one call of a node.

    Raises:
        ImportError: where Ray is not installed.
        TypeError: for an app that cannot be sent to another process.
    """

    def __init__(self, app: Any, inner: InnerMod, *, seed_of: Callable[[int], int]) -> None:
        try:
            import ray  # Lazy: an optional part of Flower.
            from ray import cloudpickle
        except ImportError as error:
            raise ImportError(_NEEDED) from error
        # Ray draws from the global generators when it starts; the server's noise must not depend on that.
        with seeded(0):
            if not ray.is_initialized():
                # A cluster that is at hand need not have this package.
                ray.init(address="local", include_dashboard=False, log_to_driver=False, configure_logging=False)
        self.app, self._inner, self._seed_of = app, inner, seed_of
        self._ray, self._dumps, self._loads = ray, cloudpickle.dumps, cloudpickle.loads
        try:
            # As bytes: Ray would share arrays of the app that its functions may change.
            self._sent = ray.put(cloudpickle.dumps((app, inner)))
        except Exception as error:  # Pickling raises whatever the parts of an app raise.
            raise TypeError(f"the client app cannot be sent to another process: {error}") from error
        self._remote = ray.remote(_called)

    def start(self, node: int, message: Any, context: Any) -> Any:
        """Send the call of a node's client app to a worker."""
        given = (message, context, self._inner.units.get(node), self._inner.clip_norm, self._seed_of(node))
        return node, self._remote.remote(self._sent, self._dumps(given), sys.path)

    def finish(self, started: Any) -> tuple[Any, Any]:
        """Wait for a call; return the reply and the node's context. Raises what the client raised."""
        node, call = started
        found = self._loads(self._ray.get(call))
        if isinstance(found, Exception):
            raise found
        reply, context, made = found
        if made is not None:
            self._inner.made[node] = made
        return reply, context

    def cancel(self, started: Any) -> None:
        """End a call whose reply is not awaited."""
        self._ray.cancel(started[1])


def _called(sent: bytes, given: bytes, path: list[str]) -> bytes:
    """One call in a worker: reply, context, and the update that the client made before all mods, or None; or what the
    client raised.

    ``path``: where the apps' modules are found.
    """
    from ray import cloudpickle

    sys.path.extend(one for one in path if one not in sys.path)
    (app, inner), (message, context, unit, clip_norm, seed) = cloudpickle.loads(sent), cloudpickle.loads(given)
    node = int(context.node_id)
    inner.units, inner.clip_norm, inner.made = {} if unit is None else {node: unit}, clip_norm, {}
    try:
        with in_process(), seeded(seed):
            reply = app(message, context)
    except Exception as error:
        # Returned, because Ray prints exceptions of all calls that are not waited for.
        error.add_note(f"raised by node {node} in a Ray worker:\n{traceback.format_exc()}")
        try:
            return bytes(cloudpickle.dumps(error))
        except Exception:  # An exception may hold anything.
            return bytes(cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")))
    made: Tensor | None = inner.made.get(node)
    return bytes(cloudpickle.dumps((reply, context, made)))


Clients = LocalClients | RayClients
"""Nodes that answer messages: ``start`` begins a call of a node, ``finish`` waits for its reply and its context and
raises what the client raised, and ``cancel`` ends a call whose reply nothing waits for.
"""


class ProcessGrid:
    """A grid without a SuperLink: messages go straight to the nodes.

    Args:
        clients: answers the messages; the nodes' identifiers are 1 to ``nodes``.
        nodes: their number.
        run_config: of the run, for server and clients.
        answered: ``answered(asked, reply) -> reply or None``; None is a reply that never arrives.
        failed: called with an exception of a client, before it passes through.
    """

    def __init__(
        self,
        clients: Clients,
        nodes: int,
        *,
        run_config: Mapping[str, Any],
        answered: Callable[[Any, Any], Any],
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._clients, self._nodes, self._answered, self._failed = clients, nodes, answered, failed
        self._contexts = {
            node: context(run_config, node, {"partition-id": node - 1, "num-partitions": nodes})
            for node in range(1, nodes + 1)
        }
        self._sent = 0
        self._waiting: dict[str, Any] = {}
        self._closed = False
        # Servers of the older interface send from threads, and local clients draw from the same global generators.
        self._one_call = threading.Lock()

    @property
    def run(self) -> Any:
        """The run's description, without a SuperLink, for apps of the older interface."""
        return Run.create_empty(_RUN)

    def set_run(self, run: Any) -> None:
        """Do nothing, because there is only one run."""

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
        started = []
        try:
            for message in messages:
                with self._one_call:
                    started.append((message, *self._start(message)))
            for message, name, call in started:
                reply, self._contexts[message.metadata.dst_node_id] = self._clients.finish(call)
                with self._one_call:
                    self._waiting[name] = self._answered(message, reply)
        except Exception as error:
            self._failed(error)
            for _, _, call in started:
                self._clients.cancel(call)
            raise
        return [name for _, name, _ in started]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        found = [self._waiting.pop(name, None) for name in message_ids]
        return [one for one in found if one is not None]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(self.push_messages(messages))

    def _start(self, message: Any) -> tuple[str, Any]:
        self._sent += 1
        name, node = str(self._sent), message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = name
        if node not in self._contexts:
            raise ValueError(f"messages must go to the nodes 1 to {self._nodes}, got node {node}")
        _refuse_mixed(self._clients.app, message)
        return name, self._clients.start(node, message, self._contexts[node])


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
            f"both apps must use the same interface of Flower, got a server app with {server} and a client app with "
            f"{client}"
        )


def context(run_config: Mapping[str, Any], node: int = _SERVER, node_config: Mapping[str, Any] | None = None) -> Any:
    """Return a new context of one node, or of the server."""
    return Context(_RUN, node, dict(node_config or {}), RecordDict(), dict(run_config))


def derived_seed(seed: int, *numbers: int) -> int:
    """Return a seed computed from these numbers; seeds of different numbers are independent."""
    return int(np.random.SeedSequence(seed, spawn_key=numbers).generate_state(1)[0])


def is_masked(reply: Any) -> bool:
    """Whether a reply belongs to secure aggregation, so that it shows no update."""
    return bool(reply.has_content()) and RECORD_KEY_CONFIGS in reply.content


def masked_examples(reply: Any) -> float:
    """Return the number of examples in a reply of secure aggregation; 0 in the stages without an update."""
    record = reply.content.metric_records.get("fitres.num_examples", {})
    return float(record.get("num_examples", 0))


def examples_of(reply: Any, strategy: Any) -> float:
    """Return the number of examples by which a strategy weights a reply of training; 0 where the reply states none."""
    if "fitres.num_examples" in reply.content.metric_records:
        return masked_examples(reply)
    key = weight_key(strategy)
    found = next((one[key] for one in reply.content.metric_records.values() if key in one), 0)
    return float(found) if isinstance(found, int | float) else 0.0


def weight_key(strategy: Any) -> str:
    """Return the name under which a strategy reads the number of examples of a reply."""
    return str(getattr(getattr(strategy, "strategy", strategy), "weighted_by_key", "num-examples"))


def only_arrays(content: Any) -> tuple[str, Any]:
    """Return the name and the content of the only array record; TypeError if there are several."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise TypeError(f"messages of training must hold one ArrayRecord, got {len(records)}")
    return str(records[0][0]), records[0][1]


def is_training(message: Any) -> bool:
    """Whether a message asks for training."""
    return str(message.metadata.message_type).partition(".")[0] == "train"


def flat(record: Any) -> Tensor:
    """Return the arrays of a record as one vector ``(d,)`` of double precision; a copy."""
    parts = [torch.from_numpy(np.array(one, dtype=np.float64)).reshape(-1) for one in record.to_numpy_ndarrays()]
    return torch.cat(parts)


def layout_of(record: Any) -> Layout:
    """Return the names and shapes of the arrays in a record."""
    arrays = record.to_numpy_ndarrays()
    return Layout(names=tuple(str(name) for name in record), shapes=tuple(tuple(one.shape) for one in arrays))


def largest_number(record: Any) -> float:
    """Return the largest number that every floating-point array of a record can represent; infinite if there is
    none.
    """
    types = {one.dtype for one in record.to_numpy_ndarrays() if one.dtype.kind == "f"}
    return min((float(np.finfo(one).max) for one in types), default=math.inf)


def arrays_like(record: Any, arrays: list[Any]) -> Any:
    """Return a record of these arrays, ``[(shape)]``, under the names that another record has."""
    return ArrayRecord({name: Array(array) for name, array in zip(record.keys(), arrays, strict=True)})


def zeros_like(record: Any) -> Any:
    """Return a record of the same names and shapes that holds zeros."""
    return arrays_like(record, [np.zeros_like(one) for one in record.to_numpy_ndarrays()])


def added(record: Any, vector: Tensor, *, arrays: list[Any] | None = None) -> Any:
    """Return ``record`` with the parts of ``vector (d,)`` added to its arrays, in the arrays' own precision.

    ``arrays``: those of ``record``, where they are at hand.
    """
    held: list[Any] = record.to_numpy_ndarrays() if arrays is None else arrays
    parts = []
    for array, part in zip(held, torch.split(vector, [one.size for one in held]), strict=True):
        parts.append(np.asarray(array + part.numpy().reshape(array.shape)).astype(array.dtype))
    return arrays_like(record, parts)
