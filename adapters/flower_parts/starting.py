"""Finds the strategy that a server app starts; with the grid, the files that use what Flower does not document.

Apps run as they are. While they run, the functions that start a strategy are wrapped: ``Strategy.start`` of the newer
interface; of the older one, ``init_defaults``, which Flower calls for ``server_fn``, and ``DefaultWorkflow``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .newer import NewerRounds
from .older import OlderRounds
from .rounds import Rounds

try:
    from flwr.server.compat import app as older_app
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

NOT_STARTED = (
    "make_server_app must make an app that starts a strategy, by server_fn or in its main function: no strategy was "
    "started"
)


@contextmanager
def starting(found: Callable[[Rounds], None]) -> Iterator[None]:
    """Call ``found(rounds)`` whenever a strategy is started inside the context."""
    start, defaults, work = Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__

    def started(strategy: Any, grid: Any, initial_arrays: Any, *values: Any, **named: Any) -> Any:
        found(NewerRounds(strategy, initial_arrays))
        return start(strategy, grid, initial_arrays, *values, **named)

    def initialized(*values: Any, **named: Any) -> Any:
        server, config = defaults(*values, **named)
        # One worker: clients are called one after the other, in one order.
        server.set_max_workers(1)
        found(OlderRounds(server.strategy, server.client_manager()))
        return server, config

    def working(workflow: Any, grid: Any, context: Any) -> None:
        quantum = _quantum(workflow.fit_workflow)
        found(OlderRounds(context.strategy, context.client_manager, failing=False, quantum=quantum))
        work(workflow, grid, context)

    try:
        Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__ = started, initialized, working
        yield
    finally:
        Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__ = start, defaults, work


def _quantum(workflow: Any) -> float:
    if not isinstance(workflow, SecAggPlusWorkflow):
        return 0.0
    return 2 * float(workflow.clipping_range) * float(workflow.max_weight) / float(workflow.quantization_range)
