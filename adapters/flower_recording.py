"""Record what the server of a Flower training receives, in either of its interfaces, so that it can be attacked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..fl.recording import MessageRecorder, Tensors
from .flower_grid import is_masked, only_arrays
from .flower_rounds import as_record, watch_methods

_EXAMPLES = "num-examples"


def record(strategy: Any, recorder: MessageRecorder, *, examples: str = _EXAMPLES) -> Any:
    """Have a strategy record every round of its training, and return the strategy.

    A client's name in the recording is its node id. With another observer than ``"uploads"`` only the models are
    recorded. Nothing of the training changes, and an error of the recording ends it.

    Args:
        strategy: of ``flwr.serverapp.strategy`` or ``flwr.server.strategy``, wrappers included.
        recorder: of a model whose tensors have the names, or at least the order, of the arrays in messages.
        examples: the metric with which clients state their number of samples, in the newer interface.
    """
    taken = _Taken(recorder=recorder, examples=examples)
    if hasattr(strategy, "configure_fit"):
        names = {"configure": "configure_fit", "aggregate": "aggregate_fit"}
        watch_methods(strategy, taken, **names, record=as_record, arrive=taken.results)
    else:
        names = {"configure": "configure_train", "aggregate": "aggregate_train"}
        watch_methods(strategy, taken, **names, record=lambda arrays: arrays, arrive=taken.replies)
    return strategy


@dataclass(kw_only=True)
class _Taken:
    """What arrived in the present round, as a ``RoundWatcher``."""

    recorder: MessageRecorder
    examples: str
    before: Any = None
    messages: dict[str, Tensors] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    def configured(self, arrays: Any) -> None:
        self.before, self.messages, self.samples, self.metrics = arrays, {}, {}, {}

    def raise_failure(self) -> None: ...

    def averaged(self, arrays: Any | None) -> None: ...

    def replies(self, replies: Any) -> None:
        """Keep the replies of the newer interface."""
        for reply in replies:
            if reply.has_content() and not is_masked(reply):
                numbers = {
                    str(name): one for part in reply.content.metric_records.values() for name, one in part.items()
                }
                arrays = _tensors(only_arrays(reply.content)[1])
                self._keep(str(reply.metadata.src_node_id), arrays, numbers.pop(self.examples, None), numbers)

    def results(self, results: Any) -> None:
        """Keep the results of the older interface."""
        for proxy, result in results:
            self._keep(str(proxy.cid), _tensors(as_record(result.parameters)), result.num_examples, result.metrics)

    def _keep(self, client: str, arrays: Tensors, samples: Any, metrics: Mapping[str, Any]) -> None:
        if samples is None:
            raise ValueError(f"client {client} must state its number of samples as the metric {self.examples!r}")
        self.samples[client] = int(samples)
        if self.recorder.takes_messages:
            self.messages[client] = arrays
            self.metrics[client] = {name: float(one) for name, one in metrics.items() if isinstance(one, int | float)}

    def aggregated(self, arrays: Any | None) -> None:
        """Record the round, if it released a model."""
        if arrays is not None:
            before, after = _tensors(self.before), _tensors(arrays)
            self.recorder.round(before, self.messages, after, samples=self.samples, metrics=self.metrics)


def _tensors(record: Any) -> Tensors:
    """The arrays by name, or in their order where the names are numbers, as in the older interface."""
    names, arrays = [str(name) for name in record], record.to_numpy_ndarrays()
    return arrays if names == [str(place) for place in range(len(names))] else dict(zip(names, arrays, strict=True))
