"""Probe: candidates of whom it is asked who took part, and the truth of it. Frozen before training starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Unit
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
        stands_for: (n,), the one client at which each outsider is a non-member; -1 for a member. None: outsiders are
            non-members at every client.
    """

    shown: Candidates
    holder: np.ndarray
    sample: np.ndarray
    stands_for: np.ndarray | None = None

    def __post_init__(self) -> None:
        count = len(self.shown.labels)
        for name in ("holder", "sample", "stands_for"):
            given: np.ndarray | None = getattr(self, name)
            if given is not None and (given.shape != (count,) or given.dtype.kind != "i"):
                raise ValueError(f"{name} must be ({count},) whole numbers, got {given.shape} of {given.dtype}")
        unknown = set(self.holder.tolist()) - {-1, *self.shown.clients}
        if unknown:
            raise ValueError(f"holder must be one of {self.shown.clients} or -1, got {sorted(unknown)}")
        if self.stands_for is not None:
            self._check_stand_ins(self.stands_for)

    def _check_stand_ins(self, stands_for: np.ndarray) -> None:
        unknown = set(stands_for[~self.member].tolist()) - {*self.shown.clients}
        if unknown:
            raise ValueError(f"stands_for must be one of {self.shown.clients} for outsiders, got {sorted(unknown)}")
        if (stands_for[self.member] != -1).any():
            raise ValueError("stands_for must be -1 for members, who stand for nobody")

    @property
    def member(self) -> np.ndarray:
        """(n,), true where one of the clients in question trains on the candidate."""
        return self.holder >= 0


@dataclass(frozen=True, kw_only=True)
class People:
    """Clients or writers of whom an attacker is to say whether they ever took part, each by equally many samples.

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


def plant_candidates(task: Task, *, count: int, clients: Sequence[int], rng: np.random.Generator) -> CandidateProbe:
    """``count`` samples of each client and outsiders that differ from them by nothing but the deal, in random order.

    Where samples are dealt whatever they are (``task.exchangeable`` is ``all``) any outsider is a non-member at every
    client: as many are drawn as there are members, or all that there are. Under label skew an outsider differs from a
    client's own samples by its label already: each then stands in for one member, with that member's label and at that
    member's client alone, so that no guess by label is worth more than a coin. Outsiders are drawn once, for all
    rounds and all clients, and none twice: drawn anew for each they would be told apart by that alone.

    Raises:
        ValueError: if there is no such client, a client, the outsiders or those of one label are too few, or no
            outsider is like a client's own samples.
    """
    if task.exchangeable == "nobody":
        raise ValueError("task must have outsiders that are like a client's own samples, got exchangeable nobody")
    for client in clients:
        _check_count(task, count, client)
    chosen = [rng.choice(task.sizes[client], size=count, replace=False) for client in clients]
    inside = torch.cat([task.parts[client][torch.from_numpy(own)] for client, own in zip(clients, chosen, strict=True)])
    holder, by_label = np.repeat(clients, count), task.exchangeable == "label"
    drawn = _of_same_labels(task, inside, rng) if by_label else _of_any_label(task, inside, rng)
    outside, absent = torch.from_numpy(drawn), np.full(len(drawn), -1)
    images = torch.cat([task.images[inside], task.outsider_images[outside]])
    labels = torch.cat([task.labels[inside], task.outsider_labels[outside]])
    order = rng.permutation(len(labels))
    return CandidateProbe(
        shown=Candidates(images=images[order], labels=labels[order], clients=tuple(clients)),
        holder=np.concatenate([holder, absent])[order],
        sample=np.concatenate([*chosen, absent])[order],
        stands_for=np.concatenate([absent, holder])[order] if by_label else None,
    )


def _of_any_label(task: Task, inside: Tensor, rng: np.random.Generator) -> np.ndarray:
    outsiders = len(task.outsider_labels)
    return rng.choice(outsiders, size=min(len(inside), outsiders), replace=False)


def _of_same_labels(task: Task, inside: Tensor, rng: np.random.Generator) -> np.ndarray:
    """For each member an outsider of its label, ``(len(inside),)``."""
    wanted, known = task.labels[inside].numpy(), task.outsider_labels.numpy()
    drawn = np.empty(len(wanted), dtype=np.int64)
    for label in np.unique(wanted):
        places, there = np.flatnonzero(wanted == label), np.flatnonzero(known == label)
        if len(places) > len(there):
            raise ValueError(
                f"outsiders of label {label} must be at least {len(places)}, one for each candidate with it, "
                f"got {len(there)}: lower count"
            )
        drawn[places] = rng.choice(there, size=len(places), replace=False)
    return drawn


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

    Of each as many samples are shown as the least that any of them has, drawn at random. How many each has must not
    show: the plan tells the sizes of those who take part, and a count that is none of them would be a non-member's.

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
    least = min(map(len, chosen))
    drawn = [np.sort(rng.choice(len(chosen[k]), size=least, replace=False)) for k in order]
    places = torch.cat([chosen[k][torch.from_numpy(own)] for k, own in zip(order, drawn, strict=True)])
    person = torch.arange(2 * count).repeat_interleave(least)
    shown = People(unit=unit, images=task.images[places], labels=task.labels[places], person=person)
    return PeopleProbe(shown=shown, member=order < count)


_FEW = 2
"""People a side below which no area under a curve means anything."""
