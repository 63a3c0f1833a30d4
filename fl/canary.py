"""Canaries: what is planted in one of two worlds, as data that the engine accepts. Frozen before training starts."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from .plan import Plan


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
class CanarySet:
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
    def shown(self) -> "CanarySet":
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
