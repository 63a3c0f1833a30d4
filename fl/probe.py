"""Probe: candidates or canaries, as data that the engine accepts. Frozen before training starts."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Unit
from .plan import Plan
from .task import Task


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Samples of which an attacker is to say whether one client trained on them.

    Args:
        images: (n, c, h, w) in [0, 1]; labels: (n,).
        client: the client in question.
    """

    images: Tensor
    labels: Tensor
    client: int


@dataclass(frozen=True, kw_only=True)
class CandidateProbe:
    """Candidates and, kept from every attack, the truth.

    Args:
        shown: what attacks get.
        sample: (n,), each candidate's place among its client's samples; -1 for an outsider.
    """

    shown: Candidates
    sample: np.ndarray

    @property
    def member(self) -> np.ndarray:
        """(n,), true where the client trained on the candidate."""
        return self.sample >= 0


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
        absent: (d,), the row in world 0; ``None``: there is none (add/remove).
    """

    unit: Unit
    present: Tensor
    absent: Tensor | None = None
    client: int = 0

    def __post_init__(self) -> None:
        if self.unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
            raise ValueError(f"a canary is a sample, a client or a report, got {self.unit}")
        if self.unit is Unit.SAMPLE and self.absent is not None:
            raise ValueError("a sample canary is added or removed: absent must be None")
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and not (row.ndim == 1 and bool(row.isfinite().all())):
                raise ValueError(f"a canary's {name} row must be (d,) and finite, got {row}")

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the rows fit the plan's layout and a sample canary has a client to hold it."""
        for name, row in (("present", self.present), ("absent", self.absent)):
            if row is not None and len(row) != plan.layout.dim:
                raise ValueError(f"a canary's {name} row must have {plan.layout.dim} coordinates, got {len(row)}")
        if self.unit is Unit.SAMPLE and not 0 <= self.client < plan.clients:
            raise ValueError(f"a sample canary's client must be in 0..{plan.clients - 1}, got {self.client}")

    def row(self, world: int) -> Tensor | None:
        """The row of this world, or None where there is none."""
        return self.present if world else self.absent


def plant_candidates(task: Task, *, count: int, client: int, rng: np.random.Generator) -> CandidateProbe:
    """``count`` samples of the client and ``count`` outsiders, in random order.

    Members and outsiders come from one distribution: the pool is cut at random before anybody trains.

    Raises:
        ValueError: if the client or the outsiders are fewer than ``count``.
    """
    if not 0 <= client < task.clients:
        raise ValueError(f"client must be in 0..{task.clients - 1}, got {client}")
    part = task.parts[client]
    available = min(len(part), len(task.outsider_labels))
    if count < 1 or count > available:
        raise ValueError(
            f"candidates a side must be in 1..{available} (client {client}'s samples, outsiders), got {count}"
        )
    chosen = rng.choice(len(part), size=count, replace=False)
    inside = part[torch.from_numpy(chosen)]
    outside = torch.from_numpy(rng.choice(len(task.outsider_labels), size=count, replace=False))
    images = torch.cat([task.images[inside], task.outsider_images[outside]])
    labels = torch.cat([task.labels[inside], task.outsider_labels[outside]])
    order = rng.permutation(2 * count)
    shown = Candidates(images=images[order], labels=labels[order], client=client)
    return CandidateProbe(shown=shown, sample=np.concatenate([chosen, np.full(count, -1)])[order])
