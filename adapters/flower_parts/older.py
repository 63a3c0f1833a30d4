"""The rounds of a strategy of Flower's older interface, which hands instructions to proxies of clients."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .rounds import RoundWatcher, watch_methods

try:
    from flwr.app import Message
    from flwr.common import Code, FitRes, GetParametersIns, Status
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.compat.grid_client_proxy import GridClientProxy
    from flwr.server.strategy import DPFedAvgFixed
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error


@dataclass(frozen=True, eq=False)
class OlderRounds:
    """A strategy of ``flwr.server.strategy``, and the manager of its clients.

    Args:
        strategy: of the server.
        manager: a ``ClientManager``.
        failing: whether the strategy sees a reply that never arrives as a failure, as from ``Server``.
        quantum: as of ``Rounds``; where it is not 0, the server sees the sum of replies alone, and none can be played.

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
                f"the strategy must clip at the server or by mods, got {name}, whose clients clip inside of fit, where "
                "no unit can be planted: use the wrappers DifferentialPrivacy... of flwr.server.strategy"
            )
        _refuse_to_wait(self.manager)

    @cached_property
    def initial(self) -> Any | None:
        """The strategy's initial parameters; None where it has none. Strategies hand them out once."""
        found = self.strategy.initialize_parameters(client_manager=self.manager)
        return None if found is None else _record(found)

    def initial_of_client(self, grid: Any) -> Any:
        """Ask one client for its parameters. Raises TypeError where it has none."""
        self._register(grid)
        client = self.manager.sample(1)[0]
        return _record(client.get_parameters(GetParametersIns({}), timeout=None, group_id=0).parameters)

    def watch(self, watcher: RoundWatcher) -> None:
        """Hook ``configure_fit`` and ``aggregate_fit``."""
        watch_methods(
            self.strategy,
            watcher,
            configure="configure_fit",
            aggregate="aggregate_fit",
            record=_record,
            arrive=_sort,
        )

    def asked(self, number: int, arrays: Any, grid: Any) -> list[Any]:
        """Return pairs of proxy and instructions. Raises TypeError for secure aggregation."""
        if self.quantum > 0:
            raise TypeError(
                "frozen replies cannot be played through secure aggregation: watch the app, or use replicas"
            )
        self._register(grid)
        model = compat.arrayrecord_to_parameters(arrays, keep_input=True)
        return list(self.strategy.configure_fit(number, model, self.manager))

    def replies(self, asked: list[Any], arrived: int, grid: Any) -> Any:
        """Return pairs of proxy and result, and failures."""
        results = [(one, one.fit(told, timeout=None, group_id=0)) for one, told in asked[:arrived]]
        missing = len(asked) - len(results) if self.failing else 0
        return results, [TimeoutError("the reply did not arrive") for _ in range(missing)]

    def aggregated(self, number: int, replies: Any) -> Any | None:
        """Return the model that the strategy makes of results and failures."""
        model, _ = self.strategy.aggregate_fit(number, *replies)
        return None if model is None else _record(model)

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


def _record(parameters: Any) -> Any:
    """The arrays under the names that the older interface gives them in messages: "0", "1" and so on."""
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
        if num_clients > (there := manager.num_available()):
            raise ValueError(f"nodes must be at least the {num_clients} that the strategy waits for, got {there}")
        return wait(num_clients, *values, **named)

    manager.wait_for = waiting
