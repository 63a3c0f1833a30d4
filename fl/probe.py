"""Probe: candidates or canaries, as data that the engine accepts. Frozen before training starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from .plan import Plan
from .task import Task


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Samples of which an attacker is to say which of some clients trained on them.

    Args:
        images: (n, c, h, w) in [0, 1]; labels: (n,).
        clients: the clients in question. Every candidate is asked about at each of them: a list of questions that left
            some out would tell who holds what.
    """

    images: Tensor
    labels: Tensor
    clients: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.clients or len(set(self.clients)) < len(self.clients):
            raise ValueError(f"clients must name clients, each once, got {self.clients}")


@dataclass(frozen=True, kw_only=True)
class CandidateProbe:
    """Candidates and, kept from every attack, the truth.

    Args:
        shown: what attacks get.
        holder: (n,), which client trains on each candidate; -1 for an outsider.
        sample: (n,), each candidate's place among its holder's samples; -1 for an outsider.
    """

    shown: Candidates
    holder: np.ndarray
    sample: np.ndarray

    def __post_init__(self) -> None:
        count = len(self.shown.labels)
        for name in ("holder", "sample"):
            given: np.ndarray = getattr(self, name)
            if given.shape != (count,) or given.dtype.kind != "i":
                raise ValueError(f"{name} must be ({count},) whole numbers, got {given.shape} of {given.dtype}")
        unknown = set(self.holder.tolist()) - {-1, *self.shown.clients}
        if unknown:
            raise ValueError(f"holder must be one of {self.shown.clients} or -1, got {sorted(unknown)}")

    @property
    def member(self) -> np.ndarray:
        """(n,), true where one of the clients in question trains on the candidate."""
        return self.holder >= 0


@dataclass(frozen=True, kw_only=True)
class People:
    """Clients or writers of whom an attacker is to say whether they ever took part, each by samples of theirs.

    Args:
        unit: CLIENT or USER.
        images: (n, c, h, w) in [0, 1]; labels: (n,).
        person: (n,), whose each sample is, numbers from 0 that say nothing else.
    """

    unit: Unit
    images: Tensor
    labels: Tensor
    person: Tensor

    @property
    def count(self) -> int:
        """How many people."""
        return int(self.person.max()) + 1


@dataclass(frozen=True, kw_only=True)
class PeopleProbe:
    """People and, kept from every attack, the truth: ``member`` (people,), true where one took part."""

    shown: People
    member: np.ndarray

    def __post_init__(self) -> None:
        if self.member.shape != (self.shown.count,) or self.member.dtype != np.bool_:
            raise ValueError(f"member must be ({self.shown.count},) booleans, got {self.member.shape}")


class Canaries(Protocol):
    """What the engine asks of whatever is planted in a federation."""

    @property
    def unit(self) -> Unit:
        """SAMPLE (among one client's samples), CLIENT or REPORT (one more client each)."""
        ...

    @property
    def client(self) -> int:
        """The client that holds sample canaries."""
        ...

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless they fit the plan."""
        ...

    def there(self, world: int) -> tuple[int, ...]:
        """Numbers of those that are there in this world."""
        ...

    def rows(self, world: int) -> Tensor | None:
        """Gradients (samples) or updates (clients) of those that are there, ``(k, d)``; None for canaries of data."""
        ...

    def samples(self, world: int) -> tuple[Tensor, Tensor] | None:
        """Images ``(n, c, h, w)`` and labels ``(n,)`` that a canary brings; None for canaries that are rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Canary:
    """One planted row that is there in world 1 and not (or another) in world 0.

    It enters as data: a sample canary's gradient stands among its client's per-sample gradients and is drawn into
    lots like any sample; a client canary's update stands among the updates and is drawn into cohorts like any client.
    Clip, sum, noise and channel treat it as everybody.

    Args:
        unit: SAMPLE (a row of ``client``'s gradients), CLIENT or REPORT (a row of the updates).
        client: the client that holds a sample canary; ignored for the others, which are one more client.
        present: (d,), the row in world 1. Its norm should be at least ten clip norms, or a missing clip cannot show.
        absent: (d,), the row in world 0; ``None``: there is none (add/remove); zeros: it is set to zero (zero-out).
    """

    unit: Unit
    present: Tensor
    absent: Tensor | None = None
    client: int = 0

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and not (row.ndim == 1 and bool(row.isfinite().all())):
                raise ValueError(f"a canary's {name} row must be (d,) and finite, got {row}")

    @property
    def adjacency(self) -> Adjacency:
        """How the two worlds differ: a row of zeros in world 0 is a client set to zero, any other one replaced."""
        if self.absent is None:
            return Adjacency.ADD_REMOVE
        return Adjacency.REPLACE_ONE if bool(self.absent.any()) else Adjacency.ZERO_OUT

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the rows fit the plan's layout and a sample canary has a client to hold it."""
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and len(row) != plan.layout.dim:
                raise ValueError(f"a canary's {name} row must have {plan.layout.dim} coordinates, got {len(row)}")
        _check_holder(self, plan)

    def there(self, world: int) -> tuple[int, ...]:
        return (0,) if world or self.absent is not None else ()

    def rows(self, world: int) -> Tensor:
        row = self.present if world else self.absent
        return self.present.new_zeros(0, len(self.present)) if row is None else row.unsqueeze(0)

    def samples(self, world: int) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class DataCanary:
    """A canary that is data and goes through the model: its gradient is computed at each round's model, as anybody's.

    Args:
        unit: SAMPLE (one more sample of ``client``), CLIENT or REPORT (one more client that holds these alone).
        images: (n, c, h, w) in [0, 1]; one for a sample canary.
        present: (n,), their labels in world 1.
        absent: (n,), their labels in world 0; ``None``: the images are not there (add/remove).
        client: the client that holds a sample canary; ignored for the others.
    """

    unit: Unit
    images: Tensor
    present: Tensor
    absent: Tensor | None = None
    client: int = 0

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if self.images.ndim != 4 or not len(self.images) or (self.unit is Unit.SAMPLE and len(self.images) != 1):
            raise ValueError(f"a canary's images must be (n, c, h, w), one for a sample, got {self.images.shape}")
        for name, labels in (("present", self.present), ("absent", self.absent)):
            if labels is not None and (labels.shape != self.images.shape[:1] or labels.dtype != torch.int64):
                raise ValueError(f"a canary's {name} labels must be ({len(self.images)},) int64, got {labels}")

    @property
    def adjacency(self) -> Adjacency:
        """How the two worlds differ."""
        return Adjacency.ADD_REMOVE if self.absent is None else Adjacency.REPLACE_ONE

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless a sample canary has a client to hold it."""
        _check_holder(self, plan)

    def there(self, world: int) -> tuple[int, ...]:
        return (0,) if world or self.absent is not None else ()

    def rows(self, world: int) -> None:
        return None

    def samples(self, world: int) -> tuple[Tensor, Tensor] | None:
        labels = self.present if world else self.absent
        return None if labels is None else (self.images, labels)


@dataclass(frozen=True, kw_only=True)
class CanaryCrowd:
    """Many canaries in one run, each in or out by its own coin; number j stands on the j-th inert weight.

    Args:
        unit: SAMPLE (rows of ``client``'s gradients), CLIENT or REPORT (as many more clients).
        length: raw norm of each row.
        dim: coordinates of the model, of which the last m are inert weights.
        coins: (m,) booleans, kept from every attack: which are in.
        replaced: whether a canary that is out shows its row turned round (replace-one) and not none (add/remove).
        client: the client that holds sample canaries; ignored for the others.
    """

    unit: Unit
    length: float
    dim: int
    coins: Tensor
    replaced: bool = False
    client: int = 0

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if not 0 < self.length < math.inf:
            raise ValueError(f"a crowd's length must be > 0 and finite, got {self.length}")
        if self.coins.ndim != 1 or not len(self.coins) or self.coins.dtype is not torch.bool:
            raise ValueError(f"a crowd's coins must be (m,) booleans, got {self.coins}")

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless every canary has an inert weight and sample canaries a client to hold them."""
        layout = plan.layout
        if (layout.dim, layout.inert) != (self.dim, len(self.coins)):
            wanted = f"{self.dim} coordinates, {len(self.coins)} of them inert"
            raise ValueError(f"a crowd needs {wanted}; the plan has {layout.dim}, {layout.inert} of them inert")
        _check_holder(self, plan)

    @property
    def shown(self) -> "CanaryCrowd":
        """The crowd as an attack gets it: without the coins."""
        return replace(self, coins=torch.ones_like(self.coins))

    def there(self, world: int) -> tuple[int, ...]:
        """The coins say who; the world only names the streams."""
        return tuple(range(len(self.coins)) if self.replaced else self.coins.nonzero().flatten().tolist())

    def rows(self, world: int) -> Tensor:
        numbers = torch.tensor(self.there(world), dtype=torch.int64)
        rows = torch.zeros(len(numbers), self.dim)
        signs = torch.where(self.coins[numbers], 1.0, -1.0)
        rows[torch.arange(len(numbers)), self.dim - len(self.coins) + numbers] = signs * self.length
        return rows

    def samples(self, world: int) -> None:
        return None


def _check_unit(unit: Unit) -> None:
    if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
        raise ValueError(f"a canary is a sample, a client or a report, got {unit}")


def _check_holder(canaries: Canaries, plan: Plan) -> None:
    if canaries.unit is Unit.SAMPLE and not 0 <= canaries.client < plan.clients:
        raise ValueError(f"a sample canary's client must be in 0..{plan.clients - 1}, got {canaries.client}")


def plant_candidates(task: Task, *, count: int, clients: Sequence[int], rng: np.random.Generator) -> CandidateProbe:
    """``count`` samples of each client and as many outsiders together, or all that there are, in random order.

    Members and outsiders come from one distribution: the pool is cut at random before anybody trains. They are drawn
    once, for all rounds and all clients: outsiders drawn anew for each would be told apart by that alone.

    Raises:
        ValueError: if there is no such client, or a client or the outsiders are fewer than ``count``.
    """
    for client in clients:
        _check_count(task, count, client)
    chosen = [rng.choice(task.sizes[client], size=count, replace=False) for client in clients]
    inside = torch.cat([task.parts[client][torch.from_numpy(own)] for client, own in zip(clients, chosen, strict=True)])
    nobodys = min(len(inside), len(task.outsider_labels))
    outside = torch.from_numpy(rng.choice(len(task.outsider_labels), size=nobodys, replace=False))
    images = torch.cat([task.images[inside], task.outsider_images[outside]])
    labels = torch.cat([task.labels[inside], task.outsider_labels[outside]])
    order = rng.permutation(len(labels))
    absent = np.full(nobodys, -1)
    return CandidateProbe(
        shown=Candidates(images=images[order], labels=labels[order], clients=tuple(clients)),
        holder=np.concatenate([np.repeat(clients, count), absent])[order],
        sample=np.concatenate([*chosen, absent])[order],
    )


def _check_count(task: Task, count: int, client: int) -> None:
    if not 0 <= client < task.clients:
        raise ValueError(f"client must be in 0..{task.clients - 1}, got {client}")
    available = min(task.sizes[client], len(task.outsider_labels))
    if count < 1 or count > available:
        raise ValueError(
            f"candidates a side must be in 1..{available} (client {client}'s samples, outsiders), got {count}"
        )


def plant_clients(task: Task, *, count: int, rng: np.random.Generator) -> PeopleProbe:
    """``count`` clients who take part and ``count`` who were held out, or all that there are, in random order.

    Raises:
        ValueError: if there are no two on either side.
    """
    return _people(task, Unit.CLIENT, list(task.parts), list(task.held_out), count, rng)


def plant_writers(task: Task, *, count: int, rng: np.random.Generator) -> PeopleProbe:
    """The same of owners of samples: of those who are with clients that take part, and of those who are with none.

    Raises:
        ValueError: if nobody knows whose the samples are, or there are no two on either side.
    """
    if task.owners is None:
        raise ValueError("the data set must say whose its images are, got one that does not")
    dealt = torch.cat([*task.parts])
    inside = set(task.owners[dealt].tolist())
    absent = torch.cat([torch.zeros(0, dtype=torch.int64), *task.held_out])
    outside = set(task.owners[absent].tolist()) - inside
    members = [dealt[task.owners[dealt] == owner] for owner in sorted(inside)]
    return _people(
        task, Unit.USER, members, [absent[task.owners[absent] == owner] for owner in sorted(outside)], count, rng
    )


def _people(
    task: Task, unit: Unit, inside: list[Tensor], outside: list[Tensor], count: int, rng: np.random.Generator
) -> PeopleProbe:
    if min(len(inside), len(outside)) < _FEW:
        raise ValueError(
            f"{unit}s must be at least {_FEW} that take part and {_FEW} that are held out, "
            f"got {len(inside)} and {len(outside)}: raise the federation's held_out"
        )
    count = min(count, len(inside), len(outside))
    chosen = [side[k] for side in (inside, outside) for k in rng.choice(len(side), size=count, replace=False)]
    order = rng.permutation(2 * count)
    parts = [chosen[k] for k in order]
    places = torch.cat(parts)
    person = torch.arange(2 * count).repeat_interleave(torch.tensor([len(part) for part in parts]))
    shown = People(unit=unit, images=task.images[places], labels=task.labels[places], person=person)
    return PeopleProbe(shown=shown, member=order < count)


_FEW = 2
"""People a side below which no area under a curve means anything."""
