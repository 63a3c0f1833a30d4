"""Rounds of a Flower strategy on frozen updates: the user's strategy and mods run, and no client trains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...fl.laws.law import GaussianLaw
from ...fl.layout import Layout
from ...fl.seeded import seeded
from .grid import LocalClients, ProcessGrid, context, in_process, innermost
from .records import added, flat, is_training, largest_number, layout_of, only_arrays
from .rounds import Rounds
from .starting import NOT_STARTED, starting
from .stated import StatedNoise, noises_reports, stated_by_mod, stated_noise


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
            rounds_ = self._started()
            arrays = self._initial(rounds_)
            clients = _Clients(self, rounds_, updates, weights)
            found = []
            for number in range(1, rounds + 1):
                stated = stated_noise(rounds_.strategy, self.law)
                scale = 1.0 if stated is None else stated.clients
                before = flat(arrays)
                replies = clients.replies(number, arrays)
                if clients.local is not None:
                    assert clients.report is not None
                    found.append(clients.report - before)
                    continue
                arrays = rounds_.aggregated(number, replies)
                if arrays is None:
                    return None
                found.append(scale * (flat(arrays) - before))
            return torch.stack(found)

    @cached_property
    def stated(self) -> StatedNoise:
        """Noise, clip norm and number of clients that are stated. Raises ValueError where nothing states any."""
        with seeded(0), in_process():
            rounds = self._started()
            local = _Clients(self, rounds).local
        if self.law is None and local is not None:
            return stated_by_mod(local)
        found = stated_noise(rounds.strategy, self.law)
        if found is None:
            raise ValueError("the strategy states no noise: hand the law of one aggregate over as law=")
        return found

    @cached_property
    def asked(self) -> int:
        """The number of nodes that a round asks for updates."""
        with seeded(0), in_process():
            rounds = self._started()
            return len(rounds.asked(1, self._initial(rounds), _Clients(self, rounds).grid))

    @cached_property
    def layout(self) -> Layout:
        """Names and shapes of the arrays of the model."""
        with seeded(0), in_process():
            return layout_of(self._initial(self._started()))

    @cached_property
    def largest(self) -> float:
        """The largest number that all arrays of the model hold, by their types."""
        with seeded(0), in_process():
            return largest_number(self._initial(self._started()))

    def _initial(self, rounds: Rounds) -> Any:
        return self._initial_of_client if (found := rounds.initial) is None else found

    @cached_property
    def _initial_of_client(self) -> Any:
        """Asked for once, because it may take long to make a client, and outside of the generators of a play."""
        with seeded(0), in_process():
            rounds = self._started()
            return rounds.initial_of_client(_Clients(self, rounds).grid)

    def _started(self) -> Rounds:
        """The rounds of a new strategy of the server app."""
        caught: list[Rounds] = []

        def found(rounds: Rounds) -> None:
            caught.append(rounds)
            raise _Started

        grid = ProcessGrid(LocalClients(None), self.nodes, run_config={}, answered=lambda *_: None)
        with starting(found):
            try:
                self.make_server_app()(grid, context(self.run_config))
            except _Started:
                return caught[0]
        raise TypeError(NOT_STARTED)


class _Clients:
    """The client side of a play: the frozen updates pass the user's mods, in the order of the messages."""

    def __init__(
        self, play: FlowerPlay, rounds: Rounds, updates: Tensor | None = None, examples: Sequence[float] = ()
    ) -> None:
        self._rounds, self._updates, self._examples, self._number = rounds, updates, examples, 0
        self.local: Any = None
        self.report: Tensor | None = None
        self._received: tuple[Any, list[Any]] = (None, [])
        with innermost(self._frozen, self._see):
            client = play.make_client_app()
        clients = LocalClients(client, copied=lambda message: message)
        self.grid = ProcessGrid(clients, play.nodes, run_config=play.run_config, answered=self._answered)

    def replies(self, number: int, arrays: Any) -> Any:
        """Return the replies of the first nodes that are asked, one for each update; the others never answer."""
        self._number = 0
        asked = self._rounds.asked(number, arrays, self.grid)
        return self._rounds.replies(asked, len(self._examples), self.grid)

    def _see(self, mod: Any) -> None:
        if noises_reports(mod):
            self.local = mod

    def _frozen(self, message: Any, context: Any, call_next: Any) -> Any:
        if not is_training(message):
            return call_next(message, context)
        assert self._updates is not None
        received = only_arrays(message.content)[1]
        update, weight = self._updates[self._number].double(), self._examples[self._number]
        self._number += 1
        if self._received[0] is not received:
            # Read once in a round, because all nodes receive one record.
            self._received = received, received.to_numpy_ndarrays()
        return self._rounds.frozen(message, added(received, update, arrays=self._received[1]), weight)

    def _answered(self, asked: Any, reply: Any) -> Any:
        if self.local is not None and is_training(asked) and reply.has_content():
            # Read now, because servers of the older interface empty replies.
            self.report = flat(only_arrays(reply.content)[1])
        return reply
