"""Canaries are records or clients that an audit adds to a federation, fixed before training starts.

``arm`` is 1 for a run with the canary and 0 for a run without it (or with its replacement).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Unit
from .plan import Plan


@dataclass(frozen=True, kw_only=True)
class Canaries(ABC):
    """The canaries of an audit, as the training engine uses them.

    Args:
        unit: what a canary is: a sample of one client (SAMPLE), a user with samples at several clients (USER), or a
            client (CLIENT or REPORT).
        client: the client that holds the canaries, if they are samples; ignored for the other units.
        clients: a user canary is held by the first so many clients; 1 for the other units.
        place: the client of the plan whose place a canary that is a client takes; None: canaries are additional
            clients.
    """

    unit: Unit
    client: int = 0
    clients: int = 1
    place: int | None = None

    def __post_init__(self) -> None:
        # Coordinates and labels have no row of their own that could be planted.
        if self.unit not in (Unit.SAMPLE, Unit.USER, Unit.CLIENT, Unit.REPORT):
            raise ValueError(f"a canary must be a sample, a user, a client or a report, got {self.unit}")

    @property
    def holders(self) -> tuple[int, ...]:
        """The clients that hold samples of the canaries; empty if the canaries are clients."""
        if self.unit is Unit.SAMPLE:
            return (self.client,)
        return tuple(range(self.clients)) if self.unit is Unit.USER else ()

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the canaries fit the federation as its public plan describes it. A sample canary must
        have a client that holds it, and vectors must have the model's dimension.
        """
        if self.unit is Unit.SAMPLE and not 0 <= self.client < plan.clients:
            raise ValueError(f"a sample canary's client must be in 0..{plan.clients - 1}, got {self.client}")
        if self.unit is Unit.USER and not 1 <= len(self.holders) <= plan.clients:
            raise ValueError(f"a user canary's clients must be in 1..{plan.clients}, got {len(self.holders)}")
        held = self.unit in HELD_BY_CLIENTS
        if self.place is not None and not (not held and 0 <= self.place < plan.clients):
            raise ValueError(
                f"place (number of the client that a client canary becomes) must be in 0..{plan.clients - 1}, and "
                f"None for other canaries, got {self.place} for one {self.unit}"
            )

    @abstractmethod
    def there(self, arm: int) -> tuple[int, ...]:
        """Return the indices of the canaries that are present in a run, where ``arm`` is 1 with the canary and 0
        without it.
        """

    def rows(self, arm: int) -> Tensor | None:
        """Return the gradients or updates of the k canaries that are present, shape ``(k, d)``, or ``(T, k, d)`` if
        they change from round to round; None for canaries that are images.

        They are gradients of sample canaries or updates of client canaries.
        """
        return None

    def samples(self, arm: int) -> tuple[Tensor, Tensor] | None:
        """Return the images ``(n, c, h, w)`` and labels ``(n,)`` that a canary adds; None for canaries given as
        vectors.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class SingleCanary(Canaries):
    """A single canary: runs of arm 1 contain the vector ``present``, and runs of arm 0 contain ``absent`` in its place,
    or nothing if ``absent`` is None.
    """

    present: Tensor
    absent: Tensor | None = None

    def there(self, arm: int) -> tuple[int, ...]:
        return (0,) if arm or self.absent is not None else ()


@dataclass(frozen=True, kw_only=True)
class Canary(SingleCanary):
    """A canary given as a gradient or update vector; in runs without the canary the vector is absent or replaced.

    The vector is ``present`` in arm 1 and ``absent`` in arm 0.

    It enters as data. A sample canary's gradient is one of its client's per-sample gradients and is drawn into lots
    like any sample. A user canary is several such gradients at several clients, all of one owner. A client canary's
    update is one of the updates and is drawn into cohorts like any client. Clipping, sum, noise and channel treat it
    like every other row.

    Args:
        unit: SAMPLE (a row of ``client``'s gradients), USER (rows of several clients' gradients), CLIENT or REPORT (a
            row of the updates).
        copies: a user canary has so many equal rows at each of its clients; 1 for the other units.
        present: (d,), the row in arm 1, or (T, d), the rows of T rounds, which repeat in later ones. Its norm should
            be at least ten clip norms; otherwise an implementation that forgets to clip looks the same.
        absent: as ``present``, in arm 0; ``None``: no row (add/remove); zeros: the row is set to zero (zero-out).
    """

    copies: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copies < 1 or (self.unit is not Unit.USER and self.copies > 1):
            raise ValueError(f"copies of a canary's row must be >= 1, and 1 for one {self.unit}, got {self.copies}")
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and not (row.ndim in (1, 2) and len(row) and bool(row.isfinite().all())):
                raise ValueError(f"a canary's {name} vector must have shape (d,) or (T, d) and be finite, got {row}")

    @property
    def adjacency(self) -> Adjacency:
        """How the neighbouring data sets differ. It is add/remove if ``absent`` (the canary's vector in runs without
        it) is None, zero-out if this vector is zero, and replace-one otherwise.
        """
        if self.absent is None:
            return Adjacency.ADD_REMOVE
        return Adjacency.REPLACE_ONE if bool(self.absent.any()) else Adjacency.ZERO_OUT

    @property
    def added(self) -> bool:
        """Whether the runs without the canary follow the plan unchanged, because nothing takes the canary's place."""
        return self.absent is None and self.place is None

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the canary's vectors have the model's dimension and a sample canary has a client that
        holds it.
        """
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and row.shape[-1] != plan.layout.dim:
                raise ValueError(
                    f"a canary's {name} vector must have {plan.layout.dim} coordinates, got {row.shape[-1]}"
                )
        super().check(plan)

    def rows(self, arm: int) -> Tensor:
        row = self.present if arm else self.absent
        # An absent row is an empty tensor, not None: None would mean a canary that is data.
        if row is None:
            return self.present.new_zeros(0, self.present.shape[-1])
        return row.unsqueeze(-2).expand(*row.shape[:-1], self.copies, -1)


@dataclass(frozen=True, kw_only=True)
class AnyRow(Canary):
    """A canary whose gradient or update vector may hold any numbers, including infinite ones and NaN."""

    def __post_init__(self) -> None:
        Canaries.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class UserCanary(Canary):
    """A canary that is a user, present in arm 1 and absent in arm 0 (add/remove). The user's samples at several clients
    may differ in number and direction.

    Args:
        held: clients in rising order, each with the gradients ``(k, d)`` of the user's samples that it holds.
        apart: whether the samples lie among the client's others, and not behind them.
        present: (d,), any of these gradients.
    """

    unit: Unit = Unit.USER
    held: tuple[tuple[int, Tensor], ...]
    apart: bool = False

    @property
    def holders(self) -> tuple[int, ...]:
        return tuple(client for client, _ in self.held)

    def rows(self, arm: int) -> Tensor:
        """Return the gradients of all clients' samples of the user, one client after the other."""
        return torch.cat([rows for _, rows in self.held])[: None if arm else 0]

    def rows_at(self, client: int, arm: int) -> Tensor | None:
        """Return the gradients ``(k, d)`` of the user's samples at a client; None if the client holds none of them."""
        return dict(self.held).get(client) if arm else None

    def order(self, others: int, own: int) -> Tensor:
        """Return the order in which a defense's hooks receive the samples of a lot, as indices ``(others + own,)`` into
        ``others`` other samples followed by the user's ``own`` samples.
        """
        places = torch.arange(others + own)
        if not self.apart:
            return places
        # The user's j-th sample comes after a share of (j + 1) / (own + 1) of the others.
        after = torch.arange(1, own + 1) * others / (own + 1) - 0.5
        return torch.argsort(torch.cat([torch.arange(others).float(), after]), stable=True)


@dataclass(frozen=True, kw_only=True)
class DataCanary(SingleCanary):
    """A canary that consists of images and labels; its gradient is computed at each round's model, as for other data.

    Args:
        unit: SAMPLE (one more sample of ``client``), USER (one more owner, with these images at several clients),
            CLIENT or REPORT (one more client that holds only these images).
        images: (n, c, h, w) in [0, 1]; one for a sample canary.
        present: (n,), the labels in arm 1.
        absent: (n,), the labels in arm 0; ``None``: the images are absent (add/remove).
    """

    images: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images.ndim != 4 or not len(self.images) or (self.unit is Unit.SAMPLE and len(self.images) != 1):
            raise ValueError(
                "a canary's images must have shape (n, c, h, w), with n = 1 for a sample canary, "
                f"got {tuple(self.images.shape)}"
            )
        for name, labels in (("present", self.present), ("absent", self.absent)):
            if labels is not None and (labels.shape != self.images.shape[:1] or labels.dtype != torch.int64):
                raise ValueError(f"a canary's {name} labels must be int64 of shape ({len(self.images)},), got {labels}")

    @property
    def adjacency(self) -> Adjacency:
        """How the neighbouring datasets differ: add/remove if ``absent`` (the labels in runs without the canary) is
        None, otherwise replace-one.
        """
        return Adjacency.ADD_REMOVE if self.absent is None else Adjacency.REPLACE_ONE

    def samples(self, arm: int) -> tuple[Tensor, Tensor] | None:
        labels = self.present if arm else self.absent
        return None if labels is None else (self.images, labels)


@dataclass(frozen=True, kw_only=True)
class CanarySet(Canaries):
    """Many canaries in one run, each included by its own fair coin.

    Canary j is a vector along the j-th inert weight, an unused weight after the model's own.

    Args:
        unit: SAMPLE (rows of ``client``'s gradients), CLIENT or REPORT (as many additional clients).
        length: raw norm of each row.
        dim: coordinates of the model, of which the last m are inert (unused) weights.
        coins: (m,) booleans, true where the canary is included. Attacks never get them.
        replaced: whether an excluded canary sends its row with the opposite sign (replace-one) or no row (add/remove).
    """

    length: float
    dim: int
    coins: Tensor
    replaced: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit is Unit.USER:
            raise ValueError("the canaries of a set must be samples, clients or reports, got users")
        if not 0 < self.length < math.inf:
            raise ValueError(
                f"the length (L2 norm) of a canary set's vectors must be > 0 and finite, got {self.length}"
            )

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the plan has one inert (unused) weight per canary and, for sample canaries, the
        client that holds them.
        """
        layout = plan.layout
        # One inert weight per canary, so that canaries do not overlap.
        if (layout.dim, layout.inert) != (self.dim, len(self.coins)):
            raise ValueError(
                f"a canary set needs {self.dim} weights, {len(self.coins)} of them inert (unused), "
                f"but the plan has {layout.dim} weights, {layout.inert} of them inert"
            )
        super().check(plan)

    @property
    def shown(self) -> "CanarySet":
        """Return the canary set as an attack receives it: without the coin flips that decided which canaries are
        included.
        """
        return replace(self, coins=torch.ones_like(self.coins))

    def there(self, arm: int) -> tuple[int, ...]:
        """Return the indices of the canaries that the set's coins include in the run.

        The coins decide it; ``arm`` only names the random streams.
        """
        return tuple(range(len(self.coins)) if self.replaced else self.coins.nonzero().flatten().tolist())

    def rows(self, arm: int) -> Tensor:
        return self._rows_of(self.there(arm))

    def row(self, place: int, arm: int) -> Tensor:
        """Return the vector ``(d,)`` of one canary, given its index among the canaries that are present."""
        return self._rows_of(self.there(arm)[place : place + 1])[0]

    def _rows_of(self, canaries: tuple[int, ...]) -> Tensor:
        numbers = torch.tensor(canaries, dtype=torch.int64)
        rows = torch.zeros(len(numbers), self.dim)
        # The opposite row is as far as two rows of one length can be apart: the strongest test of replace-one.
        signs = torch.where(self.coins[numbers], 1.0, -1.0)
        rows[torch.arange(len(numbers)), self.dim - len(self.coins) + numbers] = signs * self.length
        return rows
