"""Runs the local steps of one client in a round, for all replicas (independent runs) at once.

Clipped gradients of a lot are summed from their norms where sample gradients take too much memory together.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import isfunction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms import Algorithm, FedAvg, Numbers
from ..canary import Canaries, CanarySet, UserCanary
from ..hooks import check_returned, overrides
from ..laws import layer_slices, layer_starts, spread_layers
from ..models.network import Network
from ..plan import Plan
from ..protection import Context, Protection, State
from ..rounds import released
from ..sampling import FixedSize, Full, lot_indices
from ..streams import Runs, Streams
from ..task import Task
from .devices import CPU, exact_convolutions, moved, moved_numbers, network_on

# A subclass may change these and still have the weights of its base class.
_FREE = ("sample_weights", "noised_sum", "law")


def sums_by_norm(protection: Protection, network: Network) -> bool:
    """Return whether local steps under a protection can use norms of gradients alone, and should because the model is
    large.

    A subclass that changes another method of the class that defines ``sample_weights``, such as ``local_step``, may no
    longer be the sum that the weights describe: it gets the gradients themselves.
    """
    if not network.large or overrides(protection, "local_query"):
        return False
    above = list[type]()
    for kind in type(protection).__mro__:
        if "sample_weights" in vars(kind):
            own = {name for name, member in vars(kind).items() if isfunction(member) and not name.startswith("__")}
            changed = {name for later in above for name in vars(later)} & ({*own, "local_step"} - set(_FREE))
            return kind is not Protection and not changed
        above.append(kind)
    return False


def weighted_sum(
    network: Network,
    protection: Protection,
    local: Tensor,
    lot: tuple[Tensor, Tensor, Tensor, Tensor | None],
    planted: tuple[Tensor, Tensor] | None,
    client: int,
    context: Context,
    state: State,
) -> Tensor:
    """Return the weighted sums of a lot's gradients, shape ``(R, d)`` with one row per replica (independent run).

    ``local (R, d)``: the models; ``lot``: images ``(R, n, ...)``, labels, which samples are ``real (R, n)``, and
    dropout; ``planted``: rows ``(k, d)`` of canaries, and in which replicas they were drawn, ``(R, k)``.
    """
    weigh = partial(_weights, protection, client=client, context=context, state=state)
    # Unused weights belong to the last layer, as where layers are clipped.
    (images, labels, real, dropout), starts = lot, layer_starts(network.layout)
    totals = list[Tensor]()
    for run, point in enumerate(local):
        there = real[run].bool()
        masks = None if dropout is None else dropout[run][there]
        total = network.clipped_gradients(point, images[run][there], labels[run][there], weigh, masks)
        if planted is not None:
            rows = planted[0].to(total)[planted[1][run]]
            norms = [torch.linalg.vector_norm(rows[:, part], dim=1) for part in layer_slices(starts)]
            weights = weigh(torch.stack(norms, dim=1))
            each = weights.unsqueeze(1) if weights.ndim == 1 else spread_layers(weights, starts, rows.shape[1])
            total = total + (each * rows).sum(0)
        totals.append(total)
    return torch.stack(totals)


def _weights(protection: Protection, norms: Tensor, *, client: int, context: Context, state: State) -> Tensor:
    weights = protection.sample_weights(norms, client, context, state)
    if weights is None or weights.shape not in (norms.shape, norms.shape[:1]):
        got = None if weights is None else tuple(weights.shape)
        raise ValueError(
            f"hook sample_weights must return one weight per sample, {tuple(norms.shape[:1])}, or per sample and "
            f"parameter, {tuple(norms.shape)}, got {got}"
        )
    return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch(Runs):
    """A batch of replicas (independent runs of a federation) that are trained together.

    Args:
        included: ``(R, pool)`` booleans: which of the task's samples are present in each replica; None: all. An absent
            sample enters no lot, no gradient and no mean over a lot. Public facts stay those of the plan: clients'
            sizes, expected lots and the server's weights.
    """

    included: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.included
        if given is not None and (given.ndim != 2 or len(given) != self.replicas or given.dtype is not torch.bool):
            raise ValueError(
                "included (which samples take part) must be booleans of shape (replicas, samples) with "
                f"{self.replicas} rows, "
                f"got {tuple(given.shape)} of {given.dtype}"
            )

    def check(self, plan: Plan, pool: int) -> None:
        """Raise ValueError unless ``included`` has one column per sample of the task and batches have no fixed size.

        Included samples must leave the sampling of local steps as the plan states it.
        """
        # Nothing to check: every sample is present, and lots are what the plan states.
        if self.included is None:
            return
        if self.included.shape[1] != pool:
            raise ValueError(
                f"included (which samples take part) must have a column for each of the {pool} samples, "
                f"got {self.included.shape[1]}"
            )
        # A lot of fixed size would be drawn from all samples and then lose the absent ones: no lot of that size.
        if isinstance(plan.lot, FixedSize):
            raise ValueError(
                f"included (which samples take part) needs full or Poisson sampling of batches, got {plan.lot}"
            )


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """The result of one client's local training in a round.

    Args:
        update: (R, d).
        lots: for each local step the mask ``(R, n)`` of the samples used.
        kept: what the client keeps for its next round, by name.
        released: (R, steps, k), the results of the protection's ``local_query``; None without a query.
    """

    update: Tensor
    lots: list[Tensor]
    kept: dict[str, Tensor] = field(default_factory=dict)
    released: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Held:
    """A client's samples: indices ``places (n,)`` into shared images and labels, which avoids copies; ``owners (n,)``:
    the samples' owners, None if not known.
    """

    images: Tensor
    labels: Tensor
    places: Tensor
    owners: Tensor | None = None

    def owners_of(self, chosen: Tensor, planted: int) -> Tensor | None:
        """Return the owners ``(R, L + planted)`` of the drawn samples, followed by -1 for each of ``planted`` canaries;
        None if the owners are not known.
        """
        if self.owners is None:
            return None
        own = self.owners[chosen]
        return torch.cat([own, own.new_full((len(own), planted), -1)], dim=1)


@dataclass(frozen=True, kw_only=True)
class Lot:
    """The samples that a client drew for one local step, in each of R replicas (independent runs).

    Args:
        client, step: whose lot it is, and of which local step of the round.
        held: the client's samples.
        mask: (R, n + k), which of the n samples and of the k planted rows were drawn.
        chosen: (R, L), the indices of the drawn samples; shorter lots are padded with other samples of the client.
        real: (R, L), false on the padding.
        dropout: (R, L, features), None for a model without dropout.
        planted: (k, d), the rows of canaries that the client holds; None without any.
    """

    client: int
    step: int
    held: Held
    mask: Tensor
    chosen: Tensor
    real: Tensor
    dropout: Tensor | None
    planted: Tensor | None

    @property
    def images(self) -> Tensor:
        """The images of the drawn samples, ``(R, L, c, h, w)``."""
        return self.held.images[self.held.places[self.chosen]]

    @property
    def labels(self) -> Tensor:
        """The labels of the drawn samples, ``(R, L)`` for a classifier."""
        return self.held.labels[self.held.places[self.chosen]]

    @property
    def weights(self) -> Tensor:
        """The weights ``(R, L)`` that the samples have in the mean over the lot; an empty lot has a mean of zero."""
        return self.real / self.real.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True, kw_only=True)
class LocalStep:
    """The result of one local step: its direction ``(R, d)``, the drawn samples ``(R, n)``, and the answer ``(R, k)``
    to a query.
    """

    direction: Tensor
    drawn: Tensor
    answer: Tensor | None = None


def check_unchanged(model: Tensor, version: int, algorithm: Algorithm, protection: Protection) -> None:
    """Raise ValueError if the model that clients receive was changed in place, which PyTorch shows by a version number
    above ``version``.
    """
    if model._version != version:
        raise ValueError(
            f"{type(algorithm).__name__} or {type(protection).__name__} changed in place the model that clients "
            "receive: their methods must return new tensors"
        )


@dataclass(frozen=True, kw_only=True)
class LocalTrainer(ABC):
    """The base class of executors, which run the local training of the clients, including canary clients.

    Clients start from the broadcast model. An executor decides in which groups clients are computed; all random draws
    come from streams that are named by client and step, so that they do not depend on it.

    ``device``: where gradients and local steps are computed. Draws, the protection's hooks and all results are on the
    CPU, so that equal draws give equal noise and no hook meets a tensor on another device.
    """

    task: Task
    protection: Protection
    streams: Streams
    batch: Batch
    canary: Canaries | None
    device: str = CPU

    @classmethod
    def check(cls, network: Network) -> None:
        """Raise ValueError if this executor cannot train the model on this machine; the base class can train any."""
        return

    @abstractmethod
    def train_all(
        self, model: Tensor, context: Context, state: State, shared: Numbers, kept: Mapping[int, Numbers]
    ) -> Iterator[LocalResult]:
        """Train the clients of ``context.senders`` from ``model (R, d)``, and yield their results in that order.

        ``kept``: what each client stored after its last round.
        """

    @cached_property
    def planted_clients(self) -> tuple[int, ...]:
        """The indices of the canary clients of this run: a canary takes the place of one of the plan's clients, or is
        an additional client.
        """
        if self.canary is None or self.canary.holders:
            return ()
        first = self.task.clients if self.canary.place is None else self.canary.place
        return tuple(first + number for number in self.canary.there(self.batch.arm))

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """The clients from which cohorts are drawn. In runs without the canary, the client whose place the canary takes
        is absent.
        """
        taken = None if self.canary is None else self.canary.place
        return tuple(sorted({*range(self.task.clients)} - {taken} | {*self.planted_clients}))

    @property
    def is_plain(self) -> bool:
        """Whether all samples are present and no hook of the defense needs per-sample gradients."""
        return self.batch.included is None and not self.protection.per_sample

    def train(
        self,
        model: Tensor,
        client: int,
        context: Context,
        state: State,
        *,
        shared: Numbers | None = None,
        kept: Numbers | None = None,
    ) -> LocalResult:
        """Run one client's local training from the server's ``model``, shape ``(R, d)`` with one row per replica
        (independent run). Return what the client sends and what it keeps.

        A canary that is a row has its update already.
        """
        if (ready := self.ready(model, client, context)) is not None:
            return ready
        if len(model) == 1 and self.descends(client, context):
            return self.descended(model, client, context)
        algorithm = context.plan.algorithm
        start = moved(model, self.device)
        version = start._version
        given = [None if part is None else moved_numbers(part, self.device) for part in (shared, kept)]
        local, local_state = start, algorithm.start(start, *given)
        held = self.held(client)
        taken: list[LocalStep] = []
        for number in range(algorithm.local_steps):
            step = self.step(local, self.lot(held, client, context, number), context, state)
            local, local_state = algorithm.step(local, step.direction, local_state)
            taken.append(step)
        check_unchanged(start, version, algorithm, self.protection)
        return LocalResult(
            update=moved(algorithm.update(start, local), CPU),
            kept=moved_numbers(algorithm.keep(start, local, local_state), CPU),
            **self.recorded(client, context, taken),
        )

    def descends(self, client: int, context: Context) -> bool:
        """Whether a client takes plain SGD steps along mean gradients, without any hook of the defense."""
        algorithm = context.plan.algorithm
        return (
            # Not a subclass, which may step otherwise; a linear model's gradient has a closed form, which is faster.
            type(algorithm) is FedAvg
            and algorithm.optimizer == "sgd"
            and self.task.network.model != "logistic"
            and not self.protection.per_sample
            and self._planted_rows(client, context.round) is None
        )

    def descended(self, model: Tensor, client: int, context: Context) -> LocalResult:
        """Return the result of a client that ``descends`` from ``model (1, d)``, computed layer by layer."""
        algorithm, layout = context.plan.algorithm, context.plan.layout
        assert isinstance(algorithm, FedAvg)
        start, held, masks = moved(model, self.device), self.held(client), list[Tensor]()
        layers = {name: layer.clone() for name, layer in layout.unflatten(start[0]).items()}
        for number in range(algorithm.local_steps):
            lot = self.lot(held, client, context, number)
            # The mean over an empty lot is zero.
            if lot.real.any():
                with self.exactly():
                    layers = self.descent(layers, algorithm.learning_rate, lot, context.plan)
            masks.append(lot.mask)
        # The difference of weights layer by layer; inert weights have no gradient.
        update = torch.empty_like(start)
        update[:, layout.model_dim :] = 0
        before, after = layout.unflatten(start[0]), layout.unflatten(update[0])
        for name, layer in layers.items():
            torch.sub(layer, before[name], out=after[name])
        return LocalResult(update=moved(update, CPU), lots=self.own_lots(client, context, masks))

    def descent(self, layers: dict[str, Tensor], rate: float, lot: Lot, plan: Plan) -> dict[str, Tensor]:
        """Return the layers after a step along the mean gradient of a lot; the given layers may be changed."""
        dropout = None if lot.dropout is None else moved(lot.dropout[0], self.device)
        images, labels, weights = (moved(part[0], self.device) for part in (lot.images, lot.labels, lot.weights))
        self.network.descend(layers, rate, images, labels, weights, dropout)
        return layers

    def ready(self, model: Tensor, client: int, context: Context) -> LocalResult | None:
        """Return the result of a canary client whose update is a given vector; None for a client that trains."""
        row = self._planted_update(client, context.round)
        return None if row is None else LocalResult(update=row.to(model).expand_as(model), lots=[])

    def recorded(self, client: int, context: Context, taken: Sequence[LocalStep]) -> dict[str, Any]:
        """Return a client's lots and query answers as fields of a ``LocalResult``."""
        answers = [step.answer for step in taken if step.answer is not None]
        return {
            "lots": self.own_lots(client, context, [step.drawn for step in taken]),
            "released": torch.stack(answers, dim=1) if answers else None,
        }

    def own_lots(self, client: int, context: Context, masks: Sequence[Tensor]) -> list[Tensor]:
        """Return the masks of a client's lots for the task's samples alone, without the entries for canaries."""
        own = 0 if client in self.planted_clients else context.plan.sizes[client]
        return [mask[:, :own] for mask in masks]

    def lot(self, held: Held, client: int, context: Context, step: int) -> Lot:
        """Draw a client's lot; canaries are the last samples and are drawn like the other samples."""
        planted = self._planted_rows(client, context.round)
        size = len(held.places) + (0 if planted is None else len(planted))
        mask = self._mask(client, context, step, size)
        # Canary rows have no image: they are appended to the lot's gradients.
        chosen, real = lot_indices(mask[:, : len(held.places)])
        return Lot(
            client=client,
            step=step,
            held=held,
            mask=mask,
            chosen=chosen,
            real=real,
            dropout=self._dropout(chosen, client, context, step),
            planted=planted,
        )

    def _mask(self, client: int, context: Context, step: int, size: int) -> Tensor:
        replicas, included = self.batch.replicas, self.batch.included
        rule = context.plan.lot
        # A full lot needs no draw, which would take as long as the arithmetic of a small client.
        full = type(rule) is Full
        mask = (
            torch.ones(replicas, size, dtype=torch.bool)
            if full
            else rule.draw(self._generator("lot", client, context, step), replicas, size)
        )
        # Drawn from all samples first, so that leaving one out shifts no other sample's draw.
        if included is not None and client not in self.planted_clients:
            part = self.task.parts[client]
            mask[:, : len(part)] &= included[:, part]
        return mask

    def takes_mean(self, lot: Lot) -> bool:
        """Whether a local step's direction is the mean gradient of its lot, without any hook of the defense."""
        return not self.protection.per_sample and lot.planted is None

    def step(self, local: Tensor, lot: Lot, context: Context, state: State) -> LocalStep:
        """Return the step of a client at ``local (R, d)`` along the direction that the protection's hooks give."""
        if not self.takes_mean(lot) and sums_by_norm(self.protection, self.task.network):
            return self._by_norm(local, lot, context, state)
        images, labels = moved(lot.images, self.device), moved(lot.labels, self.device)
        dropout = None if lot.dropout is None else moved(lot.dropout, self.device)
        with self.exactly():
            if self.takes_mean(lot):
                weights = moved(lot.weights, self.device)
                direction = self.network.gradient(local, images, labels, weights, dropout)
                return LocalStep(direction=direction, drawn=lot.mask)
            rows = self.network.sample_gradients(local, images, labels, dropout)
        return self.protected(rows, lot, context, state)

    @cached_property
    def network(self) -> Network:
        """The task's network on the training device."""
        return self.task.network if self.device == CPU else network_on(self.task.network, self.device)

    @cached_property
    def pool(self) -> tuple[Tensor, Tensor]:
        """The task's images and labels on the training device."""
        return moved(self.task.images, self.device), moved(self.task.labels, self.device)

    def exactly(self) -> AbstractContextManager[None]:
        """Return the context manager inside which gradients are computed."""
        return nullcontext() if self.device == CPU else exact_convolutions()

    def _by_norm(self, local: Tensor, lot: Lot, context: Context, state: State) -> LocalStep:
        # On the CPU, because a hook weighs the samples in the middle of the computation.
        local = moved(local, CPU)
        client, real = lot.client, lot.real
        context = self._with_owners(lot, context)
        brought = None if lot.planted is None else (lot.planted, lot.mask[:, len(lot.held.places) :])
        samples = (lot.images, lot.labels, real, lot.dropout)
        total = weighted_sum(self.task.network, self.protection, local, samples, brought, client, context, state)
        rng = self._generator("local noise", client, context, lot.step)
        direction = self.protection.noised_sum(total, client, context, state, rng)
        direction = check_returned("noised_sum", direction, local)
        return LocalStep(direction=moved(direction, self.device), drawn=lot.mask)

    def protected(self, rows: Tensor, lot: Lot, context: Context, state: State) -> LocalStep:
        """Return the local step along the direction that the protection's hooks compute from a lot's gradients ``rows
        (R, L, d)``.
        """
        rows = moved(rows, CPU)
        client, real, planted = lot.client, lot.real, lot.planted
        context = self._with_owners(lot, context)
        if planted is not None:
            # Canaries come last, where `mask` has their draws.
            rows = torch.cat([rows, planted.to(rows).expand(len(rows), -1, -1)], dim=1)
            real = torch.cat([real, lot.mask[:, len(lot.held.places) :]], dim=1)
            rows, real, context = self._in_order(rows, real, context, len(planted))
        draws = partial(self._generator, client=client, context=context, step=lot.step)
        made = released(self.protection, rows, real, client, context, state, draws)
        return LocalStep(direction=moved(made.direction, self.device), drawn=lot.mask, answer=made.answer)

    def _with_owners(self, lot: Lot, context: Context) -> Context:
        return replace(context, owners=lot.held.owners_of(lot.chosen, 0 if lot.planted is None else len(lot.planted)))

    def _in_order(self, rows: Tensor, real: Tensor, context: Context, planted: int) -> tuple[Tensor, Tensor, Context]:
        """The rows of a lot, of which the last are planted, those present, and their owners, as the hooks get them."""
        if not isinstance(self.canary, UserCanary):
            return rows, real, context
        order = self.canary.order(rows.shape[1] - planted, planted)
        owners = None if context.owners is None else context.owners[:, order]
        return rows[:, order], real[:, order], replace(context, owners=owners)

    def _dropout(self, chosen: Tensor, client: int, context: Context, step: int) -> Tensor | None:
        """Dropout factors for each place ``(R, L)`` of the lots, drawn anew in every replica, round and step."""
        if not self.task.network.dropout_rate:
            return None
        return self.task.network.draw_dropout(self._generator("dropout", client, context, step), tuple(chosen.shape))

    def _planted_update(self, client: int, turn: int) -> Tensor | None:
        """The update ``(d,)`` of a canary client in a round; None for all other clients, and for canaries of images."""
        if client not in self.planted_clients:
            return None
        number = self.planted_clients.index(client)
        # Each canary of a set has a weight of its own: all rows of a large model together would fill the memory.
        if isinstance(self.canary, CanarySet):
            return self.canary.row(number, self.batch.arm)
        rows = self._planted_rows(client, turn)
        return None if rows is None else rows[number]

    def _planted_rows(self, client: int, turn: int) -> Tensor | None:
        """Rows ``(k, d)`` of the canaries in this arm that this client holds or is in a round; None without any."""
        if not self._plants(client) or self._rows is None:
            return None
        if isinstance(self.canary, UserCanary):
            return self.canary.rows_at(client, self.batch.arm)
        rows = self._rows if self._rows.ndim == 2 else self._rows[turn % len(self._rows)]
        return rows if len(rows) else None

    @cached_property
    def _rows(self) -> Tensor | None:
        return None if self.canary is None else self.canary.rows(self.batch.arm)

    def held(self, client: int) -> Held:
        """The samples on which this client trains in this arm (with or without the canary)."""
        task = self.task
        part = torch.zeros(0, dtype=torch.int64) if client in self.planted_clients else task.parts[client]
        owners = None if task.owners is None else task.owners[part]
        brought = self.canary.samples(self.batch.arm) if self.canary is not None and self._plants(client) else None
        if brought is None:
            return Held(images=task.images, labels=task.labels, places=part, owners=owners)
        labels = torch.cat([task.labels[part], brought[1]])
        return Held(
            images=torch.cat([task.images[part], brought[0]]),
            labels=labels,
            places=torch.arange(len(labels)),
            # A canary's samples are those of one owner, whom no sample of the task has.
            owners=None if owners is None else torch.cat([owners, owners.new_full((len(brought[1]),), -1)]),
        )

    def _plants(self, client: int) -> bool:
        """Whether this client holds a canary or is one."""
        return client in self.planted_clients or (self.canary is not None and client in self.canary.holders)

    def _generator(self, purpose: str, client: int, context: Context, step: int) -> np.random.Generator:
        return self.batch.draws(self.streams)(purpose, round=context.round, client=client, step=step)
