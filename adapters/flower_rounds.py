"""The rounds of a strategy that a server app starts, which can be hooked and played. Strategies of Flower's newer
interface send and aggregate messages; those of the older one hand instructions to proxies of clients.

Apps run as they are. While they run, the functions that start a strategy are wrapped: ``Strategy.start`` of the newer
interface; of the older one, ``init_defaults``, which Flower calls for ``server_fn``, and ``DefaultWorkflow``. Besides
the grid, only this file uses what Flower does not document.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from .flower_grid import only_arrays, weight_key

try:
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.common import Code, FitRes, GetParametersIns, Status
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.compat import app as older_app
    from flwr.server.compat.grid_client_proxy import GridClientProxy
    from flwr.server.strategy import DPFedAvgFixed
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.serverapp.strategy import Strategy, fedavg
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

NOT_STARTED = (
    "make_server_app must make an app that starts a strategy, by server_fn or in its main function: no strategy was "
    "started"
)


_WRAPPER = "DifferentialPrivacy"
"""How the names of Flower's wrappers begin."""


class RoundWatcher(Protocol):
    """The interface of an object that receives the model, as a record of arrays, at each point of a round."""

    def configured(self, arrays: Any) -> None:
        """Receive the model when a round begins: the strategy received this model, and has made its messages."""

    def raise_failure(self) -> None:
        """Raise the exception that a client raised in this round; called when the strategy aggregates the round."""

    def averaged(self, arrays: Any | None) -> None:
        """Receive the model that the strategy inside one of Flower's wrappers made; None if this strategy made none."""

    def aggregated(self, arrays: Any | None) -> None:
        """Receive the model that a round releases; None if the round releases none."""


def watch_methods(
    strategy: Any,
    watcher: RoundWatcher,
    *,
    configure: str,
    aggregate: str,
    record: Callable[[Any], Any],
    arrive: Callable[[Any], None] = lambda _: None,
) -> None:
    """Wrap a strategy's methods ``configure(round, model, ...)`` and ``aggregate(round, replies, ...) -> (model,
    metrics)`` so that a watcher is called.

    ``record``: of a model, as the interface has it; ``arrive``: called with the replies, before they are aggregated.
    """
    own_configure, own_aggregate = getattr(strategy, configure), getattr(strategy, aggregate)

    def configuring(*values: Any, **named: Any) -> Any:
        model = record(_values(own_configure, values, named)[1])
        made = own_configure(*values, **named)
        # Afterwards, as a strategy may set the noise of a round there.
        watcher.configured(model)
        return made

    def aggregating(*values: Any, **named: Any) -> Any:
        arrive(_values(own_aggregate, values, named)[1])
        watcher.raise_failure()
        model, metrics = own_aggregate(*values, **named)
        watcher.aggregated(None if model is None else record(model))
        return model, metrics

    setattr(strategy, configure, configuring)
    setattr(strategy, aggregate, aggregating)
    # Only of Flower's own wrappers it is known that the noise comes after the strategy inside.
    wraps = any(
        one.__name__.startswith(_WRAPPER) and one.__module__.startswith("flwr.") for one in type(strategy).mro()
    )
    if wraps and (inner := getattr(strategy, "strategy", None)) is not None:
        average = getattr(inner, aggregate)

        def averaging(*values: Any, **named: Any) -> Any:
            model, metrics = average(*values, **named)
            watcher.averaged(None if model is None else record(model))
            return model, metrics

        setattr(inner, aggregate, averaging)


def _values(method: Any, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """The arguments of a call in the method's order, because Flower names some of them."""
    bound = inspect.signature(method).bind(*values, **named)
    return [*bound.args, *bound.kwargs.values()]


@dataclass(frozen=True)
class NewerRounds:
    """A strategy of ``flwr.serverapp.strategy``, and the model that it was started with."""

    strategy: Any
    initial: Any
    quantum: float = 0.0

    def initial_of_client(self, grid: Any) -> Any:
        """Return the model with which the strategy was started."""
        return self.initial

    def watch(self, watcher: RoundWatcher) -> None:
        """Hook ``configure_train`` and ``aggregate_train``."""
        watch_methods(
            self.strategy,
            watcher,
            configure="configure_train",
            aggregate="aggregate_train",
            record=lambda arrays: arrays,
        )

    def asked(self, number: int, arrays: Any, grid: Any) -> list[Any]:
        """Return the messages of a round, ordered by node, because strategies draw the nodes in random order."""
        messages = self.strategy.configure_train(number, arrays, ConfigRecord(), grid)
        return sorted(messages, key=lambda one: int(one.metadata.dst_node_id))

    def replies(self, asked: list[Any], arrived: int, grid: Any) -> Any:
        """Return the messages that arrive at the server."""
        return list(grid.send_and_receive(asked[:arrived]))

    def aggregated(self, number: int, replies: Any) -> Any | None:
        """Return the model that the strategy computes from the messages."""
        return self.strategy.aggregate_train(number, replies)[0]

    def frozen(self, message: Any, arrays: Any, examples: float) -> Any:
        """Return a client's reply, with the number of examples under the key that the strategy reads, and with a loss
        of 1 if it reads one.
        """
        inner = getattr(self.strategy, "strategy", self.strategy)
        metrics = MetricRecord({weight_key(self.strategy): examples})
        if (key := getattr(inner, "train_loss_key", None)) is not None:
            metrics[str(key)] = 1.0
        return Message(RecordDict({only_arrays(message.content)[0]: arrays, "metrics": metrics}), reply_to=message)


@dataclass(frozen=True, eq=False)
class OlderRounds:
    """A strategy of ``flwr.server.strategy``, and the manager of its clients.

    Args:
        strategy: of the server.
        manager: a ``ClientManager``.
        failing: whether the strategy sees a reply that never arrives as a failure, as from ``Server``.
        quantum: step of the numbers that secure aggregation adds up, models times examples; 0 without it. Where it is
            not 0, the server sees the sum of replies alone, and none can be played.

    Raises:
        TypeError: for strategies whose clients clip inside of their training function.
    """

    strategy: Any
    manager: Any
    failing: bool = True
    quantum: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.strategy, DPFedAvgFixed):
            name = type(self.strategy).__name__
            raise TypeError(
                f"the strategy must clip at the server or by mods, got {name}, whose clients clip inside of fit, "
                "where no canary can be inserted: use the wrappers DifferentialPrivacy... of flwr.server.strategy"
            )
        _refuse_to_wait(self.manager)

    @cached_property
    def initial(self) -> Any | None:
        """The strategy's initial parameters; None if it has none. A strategy returns them only once."""
        found = self.strategy.initialize_parameters(client_manager=self.manager)
        return None if found is None else as_record(found)

    def initial_of_client(self, grid: Any) -> Any:
        """Ask one client for its parameters. Raises TypeError if it has none."""
        self._register(grid)
        client = self.manager.sample(1)[0]
        return as_record(client.get_parameters(GetParametersIns({}), timeout=None, group_id=0).parameters)

    def watch(self, watcher: RoundWatcher) -> None:
        """Hook ``configure_fit`` and ``aggregate_fit``."""
        watch_methods(
            self.strategy,
            watcher,
            configure="configure_fit",
            aggregate="aggregate_fit",
            record=as_record,
            arrive=_sort,
        )

    def asked(self, number: int, arrays: Any, grid: Any) -> list[Any]:
        """Return pairs of client proxy and instructions, ordered by node. Raises TypeError for secure aggregation."""
        if self.quantum > 0:
            raise TypeError(
                "frozen replies cannot be played back through secure aggregation: use watch or replicas instead"
            )
        self._register(grid)
        model = compat.arrayrecord_to_parameters(arrays, keep_input=True)
        return sorted(self.strategy.configure_fit(number, model, self.manager), key=lambda one: int(one[0].node_id))

    def replies(self, asked: list[Any], arrived: int, grid: Any) -> Any:
        """Return pairs of client proxy and result, and the failures."""
        results = [(one, one.fit(instructions, timeout=None, group_id=0)) for one, instructions in asked[:arrived]]
        missing = len(asked) - len(results) if self.failing else 0
        return results, [TimeoutError("the reply did not arrive") for _ in range(missing)]

    def aggregated(self, number: int, replies: Any) -> Any | None:
        """Return the model that the strategy computes from results and failures."""
        model, _ = self.strategy.aggregate_fit(number, *replies)
        return None if model is None else as_record(model)

    def frozen(self, message: Any, arrays: Any, examples: float) -> Any:
        """Return a client's result as a message."""
        number: Any = int(examples) if float(examples).is_integer() else examples
        result = FitRes(
            status=Status(Code.OK, ""),
            parameters=compat.arrayrecord_to_parameters(arrays, keep_input=True),
            num_examples=number,
            metrics={},
        )
        return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    def _register(self, grid: Any) -> None:
        for node in grid.get_node_ids():
            self.manager.register(GridClientProxy(node_id=node, grid=grid, run_id=grid.run.run_id))


StrategyRounds = NewerRounds | OlderRounds
"""A strategy that a server app started. Records are ``ArrayRecord``, and a ``grid`` is a ``ProcessGrid``."""


def as_record(parameters: Any) -> Any:
    """Return the arrays of parameters under the names that the older interface gives them in messages: "0", "1" and so
    on. Raises TypeError if there are none.
    """
    if not parameters.tensors:
        raise TypeError(
            "the model must have arrays, got none: give the strategy initial_parameters, or the client get_parameters"
        )
    return compat.parameters_to_arrayrecord(parameters, keep_input=True)


def _sort(results: list[Any]) -> None:
    """Order results by node: they come out of a set, whose order differs from run to run."""
    results.sort(key=lambda result: int(result[0].node_id))


def _refuse_to_wait(manager: Any) -> None:
    """Have a manager raise where it would wait a day for nodes that never come."""
    wait = manager.wait_for

    def waiting(num_clients: int, *values: Any, **named: Any) -> Any:
        _check_there(num_clients, manager.num_available())
        return wait(num_clients, *values, **named)

    manager.wait_for = waiting


def _check_there(awaited: int, there: int) -> None:
    if awaited > there:
        raise ValueError(f"nodes must be at least the {awaited} that the strategy waits for, got {there}")


@contextmanager
def starting(found: Callable[[StrategyRounds], None]) -> Iterator[None]:
    """Call ``found(rounds)`` whenever a strategy is started inside the context."""
    start, defaults, work = Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__
    sample = fedavg.sample_nodes

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

    def sampling(grid: Any, min_available_nodes: int, sample_size: int) -> Any:
        _check_there(max(min_available_nodes, sample_size), len(list(grid.get_node_ids())))
        return sample(grid, min_available_nodes, sample_size)

    try:
        Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__ = started, initialized, working
        fedavg.sample_nodes = sampling
        yield
    finally:
        Strategy.start, older_app.init_defaults, DefaultWorkflow.__call__ = start, defaults, work
        fedavg.sample_nodes = sample


def _quantum(workflow: Any) -> float:
    if not isinstance(workflow, SecAggPlusWorkflow):
        return 0.0
    return 2 * float(workflow.clipping_range) * float(workflow.max_weight) / float(workflow.quantization_range)
