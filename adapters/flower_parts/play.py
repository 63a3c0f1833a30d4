"""Rounds of a Flower strategy on frozen updates: the user's strategy and mods run, and no client trains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...fl.laws.law import GaussianLaw
from ...fl.layout import Layout
from ...fl.seeded import seeded
from .grid import ProcessGrid, context, in_process, innermost, only_arrays, starting
from .hooks import StatedNoise, added, flat, layout_of, stated_by_mod, stated_noise

try:
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp.mod import LocalDpMod
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error


class _Started(BaseException):
    """Leaves the main function of a server app as soon as it starts its strategy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowerPlay:
    """Rounds of the strategy that a server app starts, on updates of one's own.

    Arguments as those of ``App``.
    """

    make_server_app: Callable[[], Any]
    make_client_app: Callable[[], Any]
    nodes: int
    law: GaussianLaw | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)

    def releases(
        self, updates: Tensor, seed: int, *, examples: Sequence[float] | None = None, rounds: int = 1
    ) -> Tensor | None:
        """Return the sum that each round released, ``(rounds, d)``; None where a round released nothing.

        ``updates``: of the nodes whose replies arrive, before all mods and clips, ``(n, d)``, equal in all rounds;
        ``examples``: their numbers, ``(n,)``, 1 by default; ``seed``: of all generators. The sum is the movement of the
        model times the number of clients that the strategy states; for a mod that noises each report, it is the
        report of the last node.
        """
        weights = [1.0] * len(updates) if examples is None else list(examples)
        with seeded(seed), in_process():
            strategy, arrays = self._started()
            inner = getattr(strategy, "strategy", strategy)
            round_ = _Round(self, updates, weights, key=str(getattr(inner, "weighted_by_key", "num-examples")))
            found = []
            for number in range(1, rounds + 1):
                stated = stated_noise(strategy, self.law)
                scale = 1.0 if stated is None else stated.clients
                before = flat(arrays)
                messages = strategy.configure_train(number, arrays, ConfigRecord(), round_.grid)
                replies = round_.answers(messages)
                if round_.local is not None:
                    found.append(flat(round_.report) - before)
                    continue
                arrays, _ = strategy.aggregate_train(number, replies)
                if arrays is None:
                    return None
                found.append(scale * (flat(arrays) - before))
            return torch.stack(found)

    @cached_property
    def stated(self) -> StatedNoise:
        """Noise, clip norm and number of clients that are stated. Raises ValueError where nothing states any."""
        with seeded(0), in_process():
            strategy, _ = self._started()
            local = _Round(self, torch.zeros(0, 0), [], key="").local
        if self.law is None and local is not None:
            return stated_by_mod(local)
        found = stated_noise(strategy, self.law)
        if found is None:
            raise ValueError("the strategy states no noise: hand the law of one aggregate over as law=")
        return found

    @cached_property
    def asked(self) -> int:
        """The number of nodes that a round asks for updates."""
        with seeded(0), in_process():
            strategy, arrays = self._started()
            grid = _Round(self, torch.zeros(0, 0), [], key="").grid
            return len(list(strategy.configure_train(1, arrays, ConfigRecord(), grid)))

    @cached_property
    def layout(self) -> Layout:
        """Names and shapes of the arrays of the model."""
        with seeded(0), in_process():
            return layout_of(self._started()[1])

    def _started(self) -> tuple[Any, Any]:
        """A new strategy of the server app, and the initial arrays."""
        caught: list[tuple[Any, Any]] = []

        def found(strategy: Any, initial: Any) -> None:
            caught.append((strategy, initial))
            raise _Started

        grid = ProcessGrid(None, self.nodes, run_config={}, answered=lambda *_: None, called=lambda _: nullcontext())
        with starting(found):
            try:
                self.make_server_app()(grid, context(self.run_config))
            except _Started:
                return caught[0]
        raise TypeError(
            "make_server_app must make an app whose main function calls start of a strategy of "
            "flwr.serverapp.strategy: no strategy was started"
        )


class _Round:
    """The client side of a play: the frozen updates pass the user's mods, in the order of the messages."""

    def __init__(self, play: FlowerPlay, updates: Tensor, examples: list[float], *, key: str) -> None:
        self._updates, self._examples, self._key, self._number = updates, examples, key, 0
        self.local: Any = None
        self.report: Any = None
        self._received: tuple[Any, list[Any]] = (None, [])
        with innermost(self._frozen, self._see):
            client = play.make_client_app()
        self.grid = ProcessGrid(
            client,
            play.nodes,
            run_config=play.run_config,
            answered=self._answered,
            called=lambda _: nullcontext(),
            copied=lambda message: message,
        )

    def answers(self, messages: Iterable[Any]) -> list[Any]:
        """Return the replies of the first nodes that are asked, one for each update; the others never answer."""
        self._number = 0
        return list(self.grid.send_and_receive(list(messages)[: len(self._updates)]))

    def _see(self, mod: Any) -> None:
        if isinstance(mod, LocalDpMod):
            self.local = mod

    def _frozen(self, message: Any, context: Any, call_next: Any) -> Any:
        name, received = only_arrays(message.content)
        update, weight = self._updates[self._number].double(), self._examples[self._number]
        self._number += 1
        if self._received[0] is not received:
            # Read once in a round, because all nodes receive one record.
            self._received = received, received.to_numpy_ndarrays()
        made = added(received, update, arrays=self._received[1])
        content = {name: made, "metrics": MetricRecord({self._key: weight})}
        return Message(RecordDict(content), reply_to=message)

    def _answered(self, asked: Any, reply: Any) -> Any:
        if reply.has_content():
            self.report = only_arrays(reply.content)[1]
        return reply
