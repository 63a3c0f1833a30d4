"""The rounds of a strategy of Flower's newer interface, which sends and aggregates messages."""

from dataclasses import dataclass
from typing import Any

from .records import only_arrays
from .rounds import RoundWatcher, watch_methods

try:
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error


@dataclass(frozen=True)
class NewerRounds:
    """A strategy of ``flwr.serverapp.strategy``, and the model that it was started with."""

    strategy: Any
    initial: Any
    quantum: float = 0.0

    def initial_of_client(self, grid: Any) -> Any:
        """Return the model that it was started with."""
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
        """Return the messages of a round."""
        return list(self.strategy.configure_train(number, arrays, ConfigRecord(), grid))

    def replies(self, asked: list[Any], arrived: int, grid: Any) -> Any:
        """Return the messages that arrive."""
        return list(grid.send_and_receive(asked[:arrived]))

    def aggregated(self, number: int, replies: Any) -> Any | None:
        """Return the model that the strategy makes of messages."""
        return self.strategy.aggregate_train(number, replies)[0]

    def frozen(self, message: Any, arrays: Any, examples: float) -> Any:
        """Return a client's reply, with examples under the key that the strategy reads, and a loss of 1 where it reads
        one.
        """
        inner = getattr(self.strategy, "strategy", self.strategy)
        metrics = MetricRecord({str(getattr(inner, "weighted_by_key", "num-examples")): examples})
        if (key := getattr(inner, "train_loss_key", None)) is not None:
            metrics[str(key)] = 1.0
        return Message(RecordDict({only_arrays(message.content)[0]: arrays, "metrics": metrics}), reply_to=message)
