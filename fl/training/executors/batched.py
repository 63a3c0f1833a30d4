"""Trains the clients of a cohort in blocks: gradients of a block's clients in all replicas are computed together.

The lots of several clients are one batch, in which each client in each replica (independent run) is a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor

from ...algorithms import Numbers
from ...plan import Plan
from ...protection import Context, State
from ...sampling import Full
from ..devices import CPU, free_numbers, moved, moved_numbers, numbers_of_sample
from ..local import LocalResult, LocalStep, LocalTrainer, Lot, check_unchanged, sums_by_norm


@dataclass(frozen=True, kw_only=True)
class JoinedLots:
    """The lots of B clients in R replicas, padded to one length L, as ``B * R`` rows, client after client.

    ``images (B * R, L, c, h, w)``, ``labels (B * R, L)`` for a classifier, ``weights (B * R, L)`` in each lot's mean,
    zero on the padding, and ``dropout (B * R, L, features)`` or None.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    dropout: Tensor | None

    @classmethod
    def of(cls, pool: tuple[Tensor, Tensor], lots: Sequence[Lot], length: int, device: str) -> Self:
        """Join lots of samples from ``pool`` (images and labels on ``device``), none of them empty, as rows of
        ``length`` samples.
        """
        # Padded by the client's own samples: an unusual sample of another client must not enter, even at weight zero.
        places = moved(torch.cat([_filled(lot.held.places[lot.chosen], length) for lot in lots]), device)
        weights = [torch.nn.functional.pad(own, (0, length - own.shape[1])) for own in (lot.weights for lot in lots)]
        masks = [_filled(lot.dropout, length) for lot in lots if lot.dropout is not None]
        return cls(
            images=pool[0][places],
            labels=pool[1][places],
            weights=moved(torch.cat(weights), device),
            dropout=moved(torch.cat(masks), device) if masks else None,
        )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.weights)

    def part(self, start: int, rows: int) -> Self:
        """Return ``rows`` rows beginning at ``start``; if there are fewer, the last row is repeated."""
        places = torch.arange(start, start + rows, device=self.weights.device).clamp_max(self.rows - 1)
        dropout = None if self.dropout is None else self.dropout[places]
        given = {"images": self.images[places], "labels": self.labels[places], "weights": self.weights[places]}
        return type(self)(**given, dropout=dropout)


def _filled(values: Tensor, length: int) -> Tensor:
    """``values (R, L, ...)`` with the first sample's repeated behind the others, ``(R, length, ...)``."""
    lacking = length - values.shape[1]
    return torch.cat([values, values[:, :1].expand(-1, lacking, *values.shape[2:])], dim=1) if lacking else values


# Larger blocks do not fit in the cache.
_ROWS, _NUMBERS = 256, 2**22
LARGE = 2**18
"""Above so many weights, convolutions of several rows on a CPU take longer together than one after the other."""


@dataclass(frozen=True, kw_only=True)
class Batched(LocalTrainer):
    """The executor that trains a block of clients at once; the hooks of a protection still receive the gradients of one
    client at a time.

    A row of its batches is a client in a replica (independent run). With ten thousand clients of a linear model, one
    after the other, bookkeeping takes ten times as long as arithmetic.
    """

    def train_all(
        self, model: Tensor, context: Context, state: State, shared: Numbers, kept: Mapping[int, Numbers]
    ) -> Iterator[LocalResult]:
        size = self.clients_at_once(context.plan)
        for start in range(0, len(context.senders), size):
            block = context.senders[start : start + size]
            results = {client: self.ready(model, client, context) for client in block}
            clients = [client for client, ready in results.items() if ready is None]
            if clients:
                alone = len(clients) == len(model) == 1 and self.descends(clients[0], context)
                trained = (
                    iter([self.descended(model, clients[0], context)])
                    if alone
                    else self._trained(model, clients, context, state, shared, kept)
                )
                results.update(zip(clients, trained, strict=True))
            yield from (result for result in results.values() if result is not None)

    def clients_at_once(self, plan: Plan) -> int:
        """Return the number of clients in a block."""
        return max(1, self.rows_at_once(plan) // self.batch.replicas)

    def rows_at_once(self, plan: Plan) -> int:
        """Return the number of rows that are computed together, chosen so that they fit into the cache or into half of
        a GPU's memory.
        """
        lot = max(plan.lot.rate(size) * size for size in set(plan.sizes))
        gradients = plan.layout.dim * (lot if self.protection.per_sample else 1)
        if self.device == CPU:
            if plan.layout.dim > LARGE:
                return 1
            return max(1, min(_ROWS, int(_NUMBERS / (gradients + lot * prod(self.task.network.shape)))))
        # The model, its gradient and the next model; a layer's output, and its gradient.
        needed = 2 * gradients + plan.layout.dim + 2 * lot * numbers_of_sample(self.task.network)
        return max(1, int(free_numbers(self.device) / needed))

    def _trained(
        self,
        model: Tensor,
        clients: Sequence[int],
        context: Context,
        state: State,
        shared: Numbers,
        kept: Mapping[int, Numbers],
    ) -> Iterator[LocalResult]:
        """The results of a block of clients, whose replicas are the rows of one batch."""
        algorithm, count, replicas = context.plan.algorithm, len(clients), len(model)
        start = moved(model, self.device).repeat(count, 1)
        local, local_state = (
            start,
            algorithm.start(
                start,
                _repeated(moved_numbers(shared, self.device), count),
                moved_numbers(_joined([kept.get(client, {}) for client in clients]), self.device),
            ),
        )
        taken, version = list[list[LocalStep]](), start._version
        alone = self._with_one_sample(clients, context)
        held = [] if alone else [self.held(client) for client in clients]
        for number in range(algorithm.local_steps):
            lots = [self.lot(own, client, context, number) for own, client in zip(held, clients, strict=False)]
            given = local.reshape(count, replicas, -1)
            steps = self._steps_on(given, clients, context) if alone else self._steps(given, lots, context, state)
            local, local_state = algorithm.step(local, torch.cat([step.direction for step in steps]), local_state)
            taken.append(steps)
        check_unchanged(start, version, algorithm, self.protection)
        updates = moved(algorithm.update(start, local), CPU).reshape(count, replicas, -1)
        keep = moved_numbers(algorithm.keep(start, local, local_state), CPU)
        for place, client in enumerate(clients):
            rows = slice(place * replicas, (place + 1) * replicas)
            yield LocalResult(
                update=updates[place],
                kept={name: value[rows] for name, value in keep.items()},
                **self.recorded(client, context, [steps[place] for steps in taken]),
            )

    def _with_one_sample(self, clients: Sequence[int], context: Context) -> bool:
        """Whether each of these clients has one sample, which is its whole lot: then there is nothing to draw."""
        nothing_drawn = self.is_plain and type(context.plan.lot) is Full and not self.task.network.dropout_rate
        return nothing_drawn and not any(
            client in self.planted_clients
            or len(self.task.parts[client]) != 1
            or self._planted_rows(client, context.round) is not None
            for client in clients
        )

    def _steps_on(self, local: Tensor, clients: Sequence[int], context: Context) -> list[LocalStep]:
        """The steps of clients with one sample each at ``local (B, R, d)``: one lookup for a block, not one per client,
        which with ten thousand clients takes four times as long as the arithmetic.
        """
        replicas = local.shape[1]
        places = torch.cat([self.task.parts[client] for client in clients]).repeat_interleave(replicas)
        places = moved(places, self.device).unsqueeze(1)
        ones = torch.ones(len(places), 1, device=places.device)
        joined = JoinedLots(images=self.pool[0][places], labels=self.pool[1][places], weights=ones, dropout=None)
        found = self.gradients(local.flatten(0, 1), joined, context.plan)
        drawn = torch.ones(replicas, 1, dtype=torch.bool)
        return [LocalStep(direction=own, drawn=drawn) for own in torch.split(found, replicas)]

    def _steps(self, local: Tensor, lots: Sequence[Lot], context: Context, state: State) -> list[LocalStep]:
        """The steps of a block's clients at ``local (B, R, d)``; lots that cannot be joined are computed one by one."""
        network, done, rest = self.task.network, dict[int, LocalStep](), list[int]()
        means, rows = list[int](), list[int]()
        for place, lot in enumerate(lots):
            joins = lot.held.images is self.task.images and lot.chosen.shape[1]
            apart = not joins or (not self.takes_mean(lot) and sums_by_norm(self.protection, network))
            (rest if apart else means if self.takes_mean(lot) else rows).append(place)
        for each, places in ((False, means), (True, rows)):
            if not places:
                continue
            joined = self._joined_lots([lots[place] for place in places], context.plan)
            found = self.gradients(local[places].flatten(0, 1), joined, context.plan, each=each)
            for place, own in zip(places, torch.split(found, local.shape[1]), strict=True):
                lot = lots[place]
                done[place] = (
                    self.protected(own[:, : lot.chosen.shape[1]], lot, context, state)
                    if each
                    else LocalStep(direction=own, drawn=lot.mask)
                )
        done.update({place: self.step(local[place], lots[place], context, state) for place in rest})
        return [done[place] for place in range(len(lots))]

    def _joined_lots(self, lots: Sequence[Lot], plan: Plan) -> JoinedLots:
        longest = max(lot.chosen.shape[1] for lot in lots)
        return JoinedLots.of(self.pool, lots, self.length(longest, plan), self.device)

    def length(self, longest: int, plan: Plan) -> int:
        """Return the number of samples to which the lots of a block are padded; the longest lot has ``longest``
        samples.
        """
        return longest

    def gradients(self, local: Tensor, lots: JoinedLots, plan: Plan, *, each: bool = False) -> Tensor:
        """Return the mean gradient of each row's lot at ``local (rows, d)``, shape ``(rows, d)``; with ``each``, the
        gradient of every sample, ``(rows, L, d)``.
        """
        found, network = list[Tensor](), self.network
        with self.exactly():
            for point, part in self._fitting(local, lots, plan):
                given = (point, part.images, part.labels)
                found.append(
                    network.sample_gradients(*given, part.dropout)
                    if each
                    else network.gradient(*given, part.weights, part.dropout)
                )
        return torch.cat(found)

    def _fitting(self, local: Tensor, lots: JoinedLots, plan: Plan) -> Iterator[tuple[Tensor, JoinedLots]]:
        """Parts of the rows that fit into a GPU's memory; on the CPU all rows, whose operations never hold too much."""
        size = lots.rows if self.device == CPU else self.rows_at_once(plan)
        for start in range(0, lots.rows, size):
            rows = min(size, lots.rows - start)
            yield local[start : start + rows], lots if rows == lots.rows else lots.part(start, rows)


def _repeated(shared: Numbers, count: int) -> Numbers:
    return {name: value.repeat(count, *[1] * (value.ndim - 1)) for name, value in shared.items()}


def _joined(kept: Sequence[Numbers]) -> Numbers:
    """What each client keeps, ``(R, ...)`` by name, one client after the other; zero until a client has taken part."""
    like = {name: value for one in kept for name, value in one.items()}
    return {name: torch.cat([one.get(name, torch.zeros_like(value)) for one in kept]) for name, value in like.items()}
