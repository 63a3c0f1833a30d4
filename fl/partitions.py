"""Rules that distribute training samples to clients: evenly, with label skew, one per client, or by owner."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np

from ..audit.parts import Spec, build, check_members, name_and_options
from .fields import check_count, check_positive

Exchangeable = Literal["all", "label", "none"]
"""Which samples that were not dealt are distributed like a client's own, given the clients' numbers of samples.

``all``: any; ``label``: those with the same label, given how often each client has each label; ``none``: none.
"""


class Partition(Protocol):
    """The interface of a rule that distributes the training samples to the clients."""

    exchangeable: ClassVar[Exchangeable]

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the indices of each client's samples: one ascending array per client, disjoint and not empty.

        labels: (n,) integers, the class of each sample. Every sample is dealt, unless the rule states otherwise. Raises
        ValueError if the rule cannot give each client a sample.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class IID:
    """A partition that shuffles the samples and distributes them evenly (McMahan et al. 2017, section 3).

    Clients' sizes differ by at most one sample.
    """

    exchangeable: ClassVar[Exchangeable] = "all"

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the indices of each client's samples, equally many for each client where possible; see
        `Partition.split`.
        """
        _check(labels, clients)
        return _sorted(np.array_split(rng.permutation(len(labels)), clients))


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """A partition with label skew: each label is split in proportions drawn from a Dirichlet (Yurochkin et al. 2019).

    0 < alpha <= 1e9: near 0 each label lies with one client; for large alpha all clients have the same mix. Sizes vary
    too. Hsu et al. 2019 use another scheme (each client draws its mix of labels), whose alpha is not comparable. A
    client that the draw leaves without a sample gets a random one from the client with most samples. Samples of one
    label are dealt at random: given how many of them a client gets, each is equally likely to be among them.
    """

    exchangeable: ClassVar[Exchangeable] = "label"
    alpha: float

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        # Far above this bound numpy's sum of gamma draws overflows; at the bound the shares are equal to four digits.
        if self.alpha > 1e9:
            raise ValueError(f"alpha (of the Dirichlet partition) must be at most 1e9, got {self.alpha!r}")

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the indices of each client's samples, with label proportions from a Dirichlet;
        see `Partition.split`.
        """
        _check(labels, clients)
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            samples = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(clients, self.alpha))
            cuts = np.rint(np.cumsum(shares) * len(samples)).astype(np.int64)
            owner[samples] = np.searchsorted(cuts[:-1], np.arange(len(samples)), side="right")
        return _fed(_grouped(owner, clients), rng)


@dataclass(frozen=True, kw_only=True)
class Shards:
    """A partition with label skew: samples sorted by label are cut into fragments, several of which go to each client.

    There are `clients * per_client` equal fragments, `per_client` of them for each client.

    McMahan et al. 2017, section 3, deal 2 to each of 100 clients; Adap DP-FL deals 40 of 400 fragments to each of 10.
    per_client: fragments per client, >= 1. Samples of one label are shuffled before the cut: given how many of a label
    a client gets, each is equally likely to be among them.
    """

    exchangeable: ClassVar[Exchangeable] = "label"
    per_client: int

    def __post_init__(self) -> None:
        check_count("per_client (fragments per client)", self.per_client)

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the indices of each client's samples, several fragments of the sorted samples;
        see `Partition.split`.
        """
        pieces = clients * self.per_client
        _check(labels, clients, pieces=pieces, what=f"fragments ({clients} clients * {self.per_client} per_client)")
        hands = rng.permutation(pieces).reshape(clients, self.per_client)
        # Data sets are stored by writer or source: without the shuffle a fragment would be one writer's.
        shuffled = rng.permutation(len(labels))
        fragments = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], pieces)
        return _sorted([np.concatenate([fragments[piece] for piece in hand]) for hand in hands])


@dataclass(frozen=True, kw_only=True)
class OneSample:
    """A partition that gives each client exactly one sample, drawn without replacement; other samples are not used."""

    exchangeable: ClassVar[Exchangeable] = "all"

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the index of each client's one sample; other samples are left out. See `Partition.split`."""
        _check(labels, clients)
        return tuple(rng.permutation(len(labels))[:clients].reshape(clients, 1))


@dataclass(frozen=True, kw_only=True)
class ByOwner:
    """A partition that gives all samples of an owner (a writer or a receipt) to one client.

    Owners are distributed evenly by their number.

    Samples of one owner are dependent: no sample of another owner is distributed like a client's own samples.
    """

    exchangeable: ClassVar[Exchangeable] = "none"

    def split(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the indices of each client's samples, where ``labels`` are the samples' owners;
        see `Partition.split`.
        """
        # Not balanced by samples: moving a sample would split its owner.
        owners, of = np.unique(labels, return_inverse=True)
        _check(labels, clients)
        if clients > len(owners):
            raise ValueError(f"clients must be at most the number of owners, got {clients} > {len(owners)}")
        holder = np.empty(len(owners), dtype=np.int64)
        for client, hand in enumerate(np.array_split(rng.permutation(len(owners)), clients)):
            holder[hand] = client
        return _grouped(holder[of], clients)


KNOWN_PARTITIONS: Mapping[str, type[IID | Dirichlet | Shards | OneSample | ByOwner]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "one_sample": OneSample,
    "by_owner": ByOwner,
}


def partition_from(spec: Spec) -> Partition:
    """Build the partition that a suite file specifies.

    For example `"iid"`, `"one_sample"`, `{kind = "dirichlet", alpha = 0.5}`, or one from outside,
    `{part = "package.module:Name", alpha = 0.5}`: a class or function whose result has `split` and `exchangeable`.

    Raises ValueError for an unknown kind or field (the known ones are listed, nearest first), for a missing field, and
    for a part that is no partition.
    """
    partition: Partition = build("partition", spec, KNOWN_PARTITIONS)
    what = f"partition {name_and_options('partition', spec)[0]}"
    check_members(what, partition, Partition)
    if (stated := partition.exchangeable) not in get_args(Exchangeable):
        raise ValueError(f"{what} must state exchangeable as {', '.join(get_args(Exchangeable))}, got {stated!r}")
    return partition


def _check(labels: np.ndarray, clients: int, *, pieces: int = 0, what: str = "clients") -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be an integer array of shape (n,), got shape {labels.shape} of {labels.dtype}")
    if clients < 1:
        raise ValueError(f"clients must be >= 1, got {clients}")
    # Otherwise some client would hold no sample, which no algorithm allows.
    pieces = pieces or clients
    if pieces > len(labels):
        raise ValueError(f"{what} must be at most the number of samples, got {pieces} > {len(labels)}")


def _grouped(holder: np.ndarray, clients: int) -> tuple[np.ndarray, ...]:
    """The samples of each client, ascending, where ``holder (n,)`` is the client of each sample."""
    # One sort: looking for each client's samples in turn would take clients times samples.
    ends = np.cumsum(np.bincount(holder, minlength=clients))
    return tuple(np.split(np.argsort(holder, kind="stable"), ends[:-1]))


def _fed(parts: tuple[np.ndarray, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """The parts after each client without a sample got a random one of the client that then has most."""
    # Not by drawing the whole partition again until no client is empty: for small alpha that need not end.
    fed, queue = list(parts), [(-len(part), client) for client, part in enumerate(parts)]
    heapify(queue)
    for client, part in enumerate(parts):
        if not len(part):
            # Of equally many samples, the first client's: the order of the pairs in the queue.
            richest = queue[0][1]
            given = rng.choice(fed[richest])
            fed[richest], fed[client] = fed[richest][fed[richest] != given], np.array([given])
            heapreplace(queue, (-len(fed[richest]), richest))
    return tuple(fed)


def _sorted(parts: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.sort(part) for part in parts)
