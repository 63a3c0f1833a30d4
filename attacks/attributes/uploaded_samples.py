"""What an observer receives from clients, and what each sample of a client is expected to add to the received
values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...audit.observer import SHUFFLED, UPLOADS
from ...fl.algorithms import Algorithm
from ...fl.candidates import Candidates
from ...fl.laws import GaussianLaw
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..membership.candidates import RoundRows, candidate_gradients, rounds_of
from ..uploads import reduce_view

ALL = -1
"""In place of a client's number: all clients together, of whom only the sum is known."""


@dataclass(frozen=True, kw_only=True)
class UploadedSamples:
    """How a client's samples enter the client's upload, or the sum of all clients' uploads.

    Args:
        size: number of samples.
        rate: the probability with which each is drawn into each of the ``steps`` local steps.
        draws: expected number of samples in all steps together.
        law: of the samples' sum, which is multiplied by ``weight``; None where the defense publishes none.
        noise: the published standard deviation of each coordinate of the gradient behind the upload.
    """

    size: int
    rate: float
    steps: int
    draws: float
    algorithm: Algorithm
    law: GaussianLaw | None
    weight: float
    noise: float

    @classmethod
    def of(cls, client: int, view: View, knowledge: Knowledge) -> "UploadedSamples":
        """Return how the samples of one client, or of ``ALL`` clients, enter what the observer receives."""
        plan, steps = view.plan, view.plan.algorithm.local_steps
        size, drawn, weight = plan.sizes[client], plan.expected_lot(client), 1.0
        rate = plan.lot.rate(size)
        if client == ALL:
            size, drawn = sum(plan.sizes), sum(map(plan.expected_lot, range(plan.clients))) * plan.cohort_rate
            rate, weight = drawn / size, plan.sizes[0] / size
        law, seen = (knowledge.law(observer, max(client, 0)) for observer in (UPLOADS, view.observer))
        noise = 0.0
        if isinstance(seen, GaussianLaw) and client == ALL:
            noise = seen.noise_std
        elif isinstance(law, GaussianLaw):
            # Of a mean of equal clients, each with noise of its own: the squares of the weights add up to the weight.
            noise = law.noise_std * weight**0.5
        return cls(
            size=size,
            rate=rate,
            steps=steps,
            draws=drawn * steps,
            algorithm=plan.algorithm,
            law=law if isinstance(law, GaussianLaw) and law.scale < 0 else None,
            weight=weight,
            noise=abs(float(plan.algorithm.gradient(torch.tensor([noise])))),
        )

    def share(self, gradients: Tensor) -> Tensor:
        """Return what each sample is expected to add to the gradient behind the upload, computed from the sample's
        gradient; both are ``(m, d)``, the result in double precision.
        """
        drawn = gradients / self.draws
        if self.law is not None:
            drawn = self.weight * self.algorithm.gradient(self.law.contribution(gradients))
        return drawn.double() * (self.rate * self.steps)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Clients whose samples enter what the observer receives in the same way and in the same rounds.

    Args:
        lot: how they enter.
        rounds: what the observer received in the rounds in which these clients took part.
        places: the clients' places among those that were asked for.
        clients: their numbers; ``ALL``, where the observer does not learn which client sent which upload.
    """

    lot: UploadedSamples
    rounds: tuple[RoundRows, ...]
    places: list[int]
    clients: list[int]

    def received(self, rows: RoundRows) -> Tensor:
        """Return the gradients behind the clients' uploads of a round, or the mean of all these gradients, ``(clients,
        d)``.
        """
        if self.clients == [ALL]:
            return rows.gradients.double().mean(0, keepdim=True)
        return rows.gradients[[rows.senders.index(client) for client in self.clients]].double()

    def shares(self, rows: RoundRows, knowledge: Knowledge, images: Tensor, labels: Tensor) -> Tensor:
        """Return what each of m samples is expected to add to an upload of a round, ``(m, d)``."""
        samples = Candidates(images=images, labels=labels, clients=(0,))
        found = candidate_gradients(knowledge.network, rows.model, samples)
        return torch.cat([self.lot.share(gradients) for _, gradients in found])


def groups_of(view: View, knowledge: Knowledge, clients: Sequence[int]) -> list[Group]:
    """Return what the observer receives from ``clients``, or from all clients together if the observer cannot identify
    senders.

    Raises:
        Undefined: if a client took part in no round, uploads are masked, or the observer does not observe rounds.
    """
    asked = tuple(clients) if view.observer.rank >= UPLOADS.rank else (ALL,)
    if view.observer.rank == SHUFFLED.rank:
        reduced = reduce_view(view, knowledge)
        view, knowledge = reduced.view, reduced.knowledge
    rounds, found = tuple(rounds_of(view)), dict[tuple[UploadedSamples, tuple[int, ...]], Group]()
    for place, client in enumerate(asked):
        came = tuple(number for number, rows in enumerate(rounds) if client == ALL or client in rows.senders)
        if not came:
            raise Undefined(f"client {client} took part in no round, so there is nothing to score")
        lot = UploadedSamples.of(client, view, knowledge)
        group = Group(lot=lot, rounds=tuple(rounds[number] for number in came), places=[], clients=[])
        group = found.setdefault((lot, came), group)
        group.places.append(place)
        group.clients.append(client)
    return list(found.values())
