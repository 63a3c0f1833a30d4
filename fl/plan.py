"""Defines the plan: the public facts of a federation, known to clients, server and adversaries alike."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from .algorithms import Algorithm
from .fields import check_count
from .layout import Layout
from .sampling import Epoch, Sampling


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The facts about a federation that are public before training starts; defenses calibrate their noise to them.

    Args:
        sizes: samples of each client.
        rounds: communication rounds.
        cohort: which clients take part in a round.
        lot: which of its samples a client uses in a local step.
        algorithm: local steps and server combination.
        layout: the model's layers.
        clients_per_user: the largest number of clients that hold samples of one user; None where the samples' owners
            are not known.
    """

    sizes: tuple[int, ...]
    rounds: int
    cohort: Sampling
    lot: Sampling
    algorithm: Algorithm
    layout: Layout
    clients_per_user: int | None = None

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must list at least one client, each with at least one sample, got {self.sizes}")
        check_count("rounds", self.rounds)
        if self.clients_per_user is not None and not 1 <= self.clients_per_user <= len(self.sizes):
            raise ValueError(
                f"clients_per_user must be in 1..{len(self.sizes)} (clients of the plan), got {self.clients_per_user}"
            )
        if isinstance(self.lot, Epoch):
            raise ValueError(f"lot must be full, Poisson or of fixed size; Epoch is a rule for cohorts, got {self.lot}")

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.sizes)

    @property
    def cohort_rate(self) -> float:
        """The probability that a given client takes part in a round."""
        return self.cohort.rate(self.clients)

    @property
    def participations(self) -> int:
        """The largest number of rounds in which one client can take part. This is one round per pass if a pass draws
        every client once, and otherwise all rounds.
        """
        return self.cohort.participations(self.rounds)

    def draw_cohort(
        self, generator: Callable[..., np.random.Generator], replicas: int, candidates: int, *, round: int
    ) -> Tensor:
        """Draw the cohort of a round from ``candidates`` clients: a mask ``(replicas, candidates)``.

        ``generator``: returns the stream of a purpose and a ``round``. Rounds of one pass share the order that the
        pass's first round draws, so that no state is carried from round to round.
        """
        start = self.cohort.pass_start(round)
        return self.cohort.draw(generator("cohort", round=start), replicas, candidates, round - start)

    @property
    def expected_cohort(self) -> float:
        """The expected number of clients in a round."""
        return self.cohort_rate * self.clients

    @cached_property
    def largest_lot(self) -> int:
        """The number of samples of the largest lot that a client may draw."""
        return max(self.lot.most(size) for size in set(self.sizes))

    @property
    def steps(self) -> int:
        """The number of local steps over the whole training, for a client that takes part in every round."""
        return self.rounds * self.algorithm.local_steps

    @property
    def marks(self) -> tuple[int, ...]:
        """The rounds after which metrics such as accuracy are recorded; see the function ``marks``."""
        return marks(self.rounds)

    def expected_lot(self, client: int) -> float:
        """Return the expected number of samples that this client draws in a local step.

        A canary client counts as the mean client.
        """
        # A canary client's number lies beyond the list: the slice is empty, and the mean over all clients is used.
        sizes = self.sizes[client : client + 1] or self.sizes
        return sum(self.lot.rate(size) * size for size in sizes) / len(sizes)

    def weight(self, client: int) -> float:
        """Return the client's weight in FedAvg's mean, which is its number of samples.

        A canary client counts as the mean client.
        """
        sizes = self.sizes[client : client + 1] or self.sizes
        return sum(sizes) / len(sizes)

    def resized(self, sizes: tuple[int, ...]) -> "Plan":
        """Return the same plan for other clients, who hold ``sizes`` samples each; the owners of the samples are then
        unknown.

        Under add/remove adjacency a smaller federation is as valid a data set.
        """
        return replace(self, sizes=sizes, clients_per_user=None)


def marks(rounds: int) -> tuple[int, ...]:
    """Return the rounds after which metrics such as accuracy are recorded, for curves over the rounds.

    There are about twenty, including the last round.
    """
    every = max(1, rounds // 20)
    return tuple(sorted({*range(every, rounds + 1, every), rounds}))
