"""Calls client apps in the worker processes of Ray, as Flower's simulation engine does."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...fl.seeded import seeded
from .grid import in_process
from .inner import InnerMod

_NEEDED = "backend='ray' needs Ray: pip install 'flwr[simulation]'"


class RayClients:
    """Calls a client app in Ray's workers, all nodes of a round at once.

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
        """Send a call of the node to a worker."""
        given = (message, context, self._inner.units.get(node), self._inner.clip_norm, self._seed_of(node))
        return node, self._remote.remote(self._sent, self._dumps(given), sys.path)

    def finish(self, started: Any) -> tuple[Any, Any]:
        """Wait for a call; returns the reply and the node's context. Raises what the client raised."""
        node, call = started
        found = self._loads(self._ray.get(call))
        if isinstance(found, Exception):
            raise found
        reply, context, made = found
        if made is not None:
            self._inner.made[node] = made
        return reply, context

    def cancel(self, started: Any) -> None:
        """End a call whose reply nothing waits for."""
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
        error.add_note(f"raised by node {node} in a worker of Ray:\n{traceback.format_exc()}")
        try:
            return bytes(cloudpickle.dumps(error))
        except Exception:  # An exception may hold anything.
            return bytes(cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")))
    made: Tensor | None = inner.made.get(node)
    return bytes(cloudpickle.dumps((reply, context, made)))
