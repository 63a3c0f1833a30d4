"""Candidates of membership and attribute inference attacks, with the true answers, fixed before training starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Unit
from .data.dataset import feature_numbers
from .task import Task


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Samples that a membership attack scores, to infer for each sample which of the audited clients trained on it.

    Args:
        images: (n, c, h, w) in [0, 1]; labels: (n,).
        clients: the clients in question. Every candidate is scored for each of them: a list that left some pairs out
            would reveal who holds what.
    """

    images: Tensor
    labels: Tensor
    clients: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.clients or len(set(self.clients)) < len(self.clients):
            raise ValueError(f"clients must list at least one client, and none twice, got {self.clients}")


@dataclass(frozen=True, kw_only=True)
class PlantedCandidates:
    """The candidate samples of a membership attack with the true answers, which no attack receives.

    Args:
        shown: what attacks get.
        holder: (n,), the client that trains on each candidate; -1 for an outsider.
        sample: (n,), each candidate's index among its holder's samples; -1 for an outsider.
        stands_for: (n,), the one client for which each outsider is a non-member; -1 for a member. None: outsiders are
            non-members for every client.
    """

    shown: Candidates
    holder: np.ndarray
    sample: np.ndarray
    stands_for: np.ndarray | None = None

    @property
    def member(self) -> np.ndarray:
        """One boolean per candidate, shape ``(n,)``: whether one of the audited clients trained on it."""
        return self.holder >= 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A sensitive column of a record, with the values that it can have.

    Args:
        places: the numbers of its features in the flattened record.
        values: (k, features), what the features are for each of the k values: of a category its indicators, of a number
            the least and the largest value of the public records. A record has the value that is nearest to its
            features.
    """

    places: tuple[int, ...]
    values: Tensor

    @classmethod
    def of(cls, public: Tensor, named: tuple[tuple[str, int], ...], column: int | str) -> "Column":
        """Return a sensitive column of records shaped like ``public (n, c, h, w)``. The column is given by its name or,
        if it is a single feature, by the feature's number; ``named``: the columns of ``Task``.

        Raises:
            ValueError: for a column that does not exist, or that has one value in all public records.
        """
        places, features = feature_numbers((column,), named), math.prod(public.shape[1:])
        if max(places) >= features or min(places) < 0:
            raise ValueError(f"column must be in 0..{features - 1}, or the name of a column, got {column!r}")
        if len(places) > 1:
            return cls(places=places, values=torch.eye(len(places)))
        seen = public.flatten(1)[:, list(places)]
        if seen.min() == seen.max():
            raise ValueError(f"column {column!r} has the same value in all public records: there is nothing to infer")
        return cls(places=places, values=torch.stack([seen.min(), seen.max()]).unsqueeze(1))

    def __len__(self) -> int:
        return len(self.values)

    def of_records(self, images: Tensor) -> Tensor:
        """Return which of the column's k values each record has, as numbers ``(n,)`` in 0..k-1."""
        return torch.cdist(images.flatten(1)[:, list(self.places)].double(), self.values.double()).argmin(1)

    def others(self, images: Tensor) -> Tensor:
        """Return all other features of the records, ``(n, features)``."""
        rows = images.flatten(1)
        kept = torch.ones(rows.shape[1], dtype=torch.bool)
        kept[list(self.places)] = False
        return rows[:, kept]

    def completed(self, images: Tensor) -> Tensor:
        """Return k copies of each record, one with each of the column's k values, ``(n * k, c, h, w)``."""
        rows = images.flatten(1).repeat_interleave(len(self), 0)
        rows[:, list(self.places)] = self.values.repeat(len(images), 1)
        return rows.view(-1, *images.shape[1:])


@dataclass(frozen=True, kw_only=True)
class Records(Candidates):
    """Records of which the attack knows everything except one ``column``. Each record is shown k times, once with each
    of the column's k values, so that the candidates ``k * i .. k * i + k - 1`` are record i.
    """

    column: Column


@dataclass(frozen=True, kw_only=True)
class PlantedRecords(PlantedCandidates):
    """The records of an attribute inference attack, with the true ``value (n,)`` of each, which no attack receives.

    ``holder``, ``sample`` and ``stands_for`` have an entry per candidate, so k per record. Members are records of the
    audited clients; all others were drawn like them, and no client trained on them.
    """

    shown: Records
    value: np.ndarray

    @classmethod
    def of(cls, planted: PlantedCandidates, column: Column) -> "PlantedRecords":
        """Turn candidate samples into records of which one column is hidden from the attack."""
        k, shown = len(column), planted.shown
        return cls(
            shown=Records(
                images=column.completed(shown.images),
                labels=shown.labels.repeat_interleave(k),
                clients=shown.clients,
                column=column,
            ),
            holder=planted.holder.repeat(k),
            sample=planted.sample.repeat(k),
            stands_for=None if planted.stands_for is None else planted.stands_for.repeat(k),
            value=column.of_records(shown.images).numpy(),
        )

    @property
    def records(self) -> PlantedCandidates:
        """Each record once, shown with the first of the hidden column's values."""
        k, shown = len(self.shown.column), self.shown
        return PlantedCandidates(
            shown=Candidates(images=shown.images[::k], labels=shown.labels[::k], clients=shown.clients),
            holder=self.holder[::k],
            sample=self.sample[::k],
            stands_for=None if self.stands_for is None else self.stands_for[::k],
        )


@dataclass(frozen=True, kw_only=True)
class OwnerCandidates:
    """Clients or users, each shown by equally many samples; an attack scores them to infer which of them took part.

    Args:
        unit: CLIENT or USER.
        images: (n, c, h, w) in [0, 1]; labels: (n,).
        owner: (n,), the owner of each sample, numbered from 0 in random order.
    """

    unit: Unit
    images: Tensor
    labels: Tensor
    owner: Tensor

    @property
    def count(self) -> int:
        """The number of clients or users."""
        return int(self.owner.max()) + 1


@dataclass(frozen=True, kw_only=True)
class PlantedOwners:
    """The clients or users that a membership attack scores, with the true answers, which no attack receives.

    ``member``: (owners,), true where the owner took part.
    """

    shown: OwnerCandidates
    member: np.ndarray


def plant_candidates(task: Task, *, count: int, clients: Sequence[int], rng: np.random.Generator) -> PlantedCandidates:
    """Draw the candidates of a membership attack: ``count`` samples of each client, and comparable non-members.

    The non-members (outsiders) differ from the members only by not being given to a client.

    Where samples are dealt regardless of their content (``task.exchangeable`` is ``all``), any outsider is a non-member
    for every client; as many are drawn as there are members, or all that exist. Under label skew an outsider already
    differs from a client's samples by its label. Then each outsider replaces one member: it has that member's label and
    counts at that member's client only, so that guessing by label is no better than a coin. Outsiders are drawn once,
    without repetition, for all rounds and clients: new draws for each would be recognisable by that alone. The order is
    random.

    Raises:
        ValueError: if there is no such client, a client has too few samples, there are too few outsiders (or too few of
            one label), or no outsider is comparable to a client's own samples.
    """
    if task.exchangeable == "none":
        raise ValueError(
            "the partition leaves no non-members comparable to a client's samples (its property exchangeable is none), "
            "so membership cannot be tested"
        )
    for client in clients:
        _check_count(task, count, client)
    chosen = [rng.choice(task.sizes[client], size=count, replace=False) for client in clients]
    inside = torch.cat([task.parts[client][torch.from_numpy(own)] for client, own in zip(clients, chosen, strict=True)])
    holder, by_label = np.repeat(clients, count), task.exchangeable == "label"
    drawn = _of_same_labels(task, inside, rng) if by_label else _of_any_label(task, inside, rng)
    outside, absent = torch.from_numpy(drawn), np.full(len(drawn), -1)
    images = torch.cat([task.images[inside], task.outsider_images[outside]])
    labels = torch.cat([task.labels[inside], task.outsider_labels[outside]])
    # Members and outsiders are mixed: their order would otherwise reveal the truth.
    order = rng.permutation(len(labels))
    return PlantedCandidates(
        shown=Candidates(images=images[order], labels=labels[order], clients=tuple(clients)),
        holder=np.concatenate([holder, absent])[order],
        sample=np.concatenate([*chosen, absent])[order],
        stands_for=np.concatenate([absent, holder])[order] if by_label else None,
    )


def _of_any_label(task: Task, inside: Tensor, rng: np.random.Generator) -> np.ndarray:
    outsiders = len(task.outsider_labels)
    return rng.choice(outsiders, size=min(len(inside), outsiders), replace=False)


def _of_same_labels(task: Task, inside: Tensor, rng: np.random.Generator) -> np.ndarray:
    """For each member an outsider with the same label, ``(len(inside),)``."""
    wanted, known = task.labels[inside].numpy(), task.outsider_labels.numpy()
    drawn = np.empty(len(wanted), dtype=np.int64)
    for label in np.unique(wanted):
        places, there = np.flatnonzero(wanted == label), np.flatnonzero(known == label)
        if len(places) > len(there):
            raise ValueError(
                f"at least {len(places)} non-members must have label {label}, one per member with this label, "
                f"got {len(there)}: lower count (candidates per client)"
            )
        drawn[places] = rng.choice(there, size=len(places), replace=False)
    return drawn


def _check_count(task: Task, count: int, client: int) -> None:
    if not 0 <= client < task.clients:
        raise ValueError(f"client must be in 0..{task.clients - 1}, got {client}")
    available = min(task.sizes[client], len(task.outsider_labels))
    if count < 1 or count > available:
        raise ValueError(
            f"count (candidates per client) must be in 1..{available}, got {count}; "
            f"client {client} has {task.sizes[client]} samples, and there are {len(task.outsider_labels)} non-members"
        )


def plant_clients(task: Task, *, count: int, rng: np.random.Generator) -> PlantedOwners:
    """Draw the candidates of a client-level membership attack: clients that take part and clients held out.

    There are ``count`` of each, or all that exist, in random order.

    Every client is shown by equally many random samples, as many as the smallest of them has. Their own numbers must
    not show: the plan publishes the sizes of the clients that take part, so another size would reveal a non-member.

    Raises:
        ValueError: if either side has fewer than two clients.
    """
    return _owners(task, Unit.CLIENT, list(task.parts), list(task.held_out), count, rng)


def plant_users(task: Task, *, count: int, rng: np.random.Generator) -> PlantedOwners:
    """Draw the candidates of a user-level membership attack: users with samples in the training data, and users
    without.

    A user is an owner of samples. Otherwise as ``plant_clients``.

    Raises:
        ValueError: if the samples' owners are not known, or either side has fewer than two users.
    """
    if task.owners is None:
        raise ValueError(
            "user-level candidates need a data set that names the owners of its images, got one that does not"
        )
    dealt = torch.cat([*task.parts])
    inside = set(task.owners[dealt].tolist())
    absent = torch.cat([torch.zeros(0, dtype=torch.int64), *task.held_out])
    # A user with samples at a participating client has taken part, whatever else is held out.
    outside = set(task.owners[absent].tolist()) - inside
    members = [dealt[task.owners[dealt] == owner] for owner in sorted(inside)]
    return _owners(
        task, Unit.USER, members, [absent[task.owners[absent] == owner] for owner in sorted(outside)], count, rng
    )


def _owners(
    task: Task, unit: Unit, inside: list[Tensor], outside: list[Tensor], count: int, rng: np.random.Generator
) -> PlantedOwners:
    if min(len(inside), len(outside)) < _FEW:
        raise ValueError(
            f"at least {_FEW} {unit}s must take part and {_FEW} be held out, "
            f"got {len(inside)} and {len(outside)}: raise the federation's held_out (clients that never take part)"
        )
    count = min(count, len(inside), len(outside))
    chosen = [side[k] for side in (inside, outside) for k in rng.choice(len(side), size=count, replace=False)]
    order = rng.permutation(2 * count)
    least = min(map(len, chosen))
    # Sorted: the order of a random choice would differ from the order in which data sets store samples.
    drawn = [np.sort(rng.choice(len(chosen[k]), size=least, replace=False)) for k in order]
    places = torch.cat([chosen[k][torch.from_numpy(own)] for k, own in zip(order, drawn, strict=True)])
    owner = torch.arange(2 * count).repeat_interleave(least)
    shown = OwnerCandidates(unit=unit, images=task.images[places], labels=task.labels[places], owner=owner)
    return PlantedOwners(shown=shown, member=order < count)


# Below two owners per side an area under the ROC curve has no meaning.
_FEW = 2
