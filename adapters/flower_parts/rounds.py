"""The rounds of one started strategy, whichever interface of Flower it has: what is hooked and what is played."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class RoundWatcher(Protocol):
    """Receives the model, as a record of arrays, at each point of a round."""

    def configured(self, arrays: Any) -> None:
        """A round begins with this model."""

    def aggregating(self, number: int) -> AbstractContextManager[None]:
        """Return the context in which the strategy aggregates the round ``number``."""

    def averaged(self, arrays: Any | None) -> None:
        """The strategy inside of a wrapper made this model; None where it made none."""

    def aggregated(self, arrays: Any | None) -> None:
        """The round releases this model; None where it releases none."""


class Rounds(Protocol):
    """A strategy that a server app started.

    Records are ``ArrayRecord``; ``grid`` is a ``ProcessGrid``.
    """

    @property
    def strategy(self) -> Any:
        """The strategy itself."""

    @property
    def quantum(self) -> float:
        """Step of the numbers that secure aggregation adds up, models times examples; 0 without it."""

    @property
    def initial(self) -> Any | None:
        """The model before the first round; None where a client is asked for it."""

    def initial_of_client(self, grid: Any) -> Any:
        """Ask a client for the model before the first round."""

    def watch(self, watcher: RoundWatcher) -> None:
        """Hook the strategy's own methods, and those of the strategy inside of a wrapper."""

    def asked(self, number: int, arrays: Any, grid: Any) -> list[Any]:
        """Return what the strategy sends in the round ``number``, one for each node."""

    def replies(self, asked: list[Any], arrived: int, grid: Any) -> Any:
        """Return the replies of the first ``arrived`` nodes that are asked; the others never answer."""

    def aggregated(self, number: int, replies: Any) -> Any | None:
        """Return the model that the strategy makes of replies; None where it releases none."""

    def frozen(self, message: Any, arrays: Any, examples: float) -> Any:
        """Return a client's reply to a message, with these arrays and this number of examples."""


def watch_methods(
    strategy: Any,
    watcher: RoundWatcher,
    *,
    configure: str,
    aggregate: str,
    record: Callable[[Any], Any],
    arrive: Callable[[Any], None] = lambda _: None,
) -> None:
    """Wrap the methods ``configure(round, model, ...)`` and ``aggregate(round, replies, ...) -> (model, metrics)``.

    ``record``: of a model, as the interface has it; ``arrive``: called with the replies, before they are aggregated.
    """
    own_configure, own_aggregate = getattr(strategy, configure), getattr(strategy, aggregate)

    def configuring(*values: Any, **named: Any) -> Any:
        watcher.configured(record(_values(own_configure, values, named)[1]))
        return own_configure(*values, **named)

    def aggregating(*values: Any, **named: Any) -> Any:
        number, replies = _values(own_aggregate, values, named)[:2]
        arrive(replies)
        with watcher.aggregating(number):
            model, metrics = own_aggregate(*values, **named)
        watcher.aggregated(None if model is None else record(model))
        return model, metrics

    setattr(strategy, configure, configuring)
    setattr(strategy, aggregate, aggregating)
    if (inner := getattr(strategy, "strategy", None)) is not None:
        average = getattr(inner, aggregate)

        def averaging(*values: Any, **named: Any) -> Any:
            model, metrics = average(*values, **named)
            watcher.averaged(None if model is None else record(model))
            return model, metrics

        setattr(inner, aggregate, averaging)


def _values(method: Any, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """The arguments of a call in the method's order, because Flower names some of them."""
    return list(inspect.signature(method).bind(*values, **named).arguments.values())
