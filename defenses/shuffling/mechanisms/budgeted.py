"""Perturb each coordinate at the client's own budget; the defenses UniS, LDP-Min, PLDP and APES share this protection.

These defenses differ in their budgets, in their noise, in whether there is a shuffler, and in what they may claim.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.observer import SHUFFLED, UPLOADS, Observer
from ....audit.wording import nearest
from ....fl.laws import Mixing
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, Protection, State, Sums
from .calibration import calibrated_mean
from .channel import shuffle_coordinates
from .clip_laplace import ClipLaplaceLaw, randomised_rows
from .laplace import LaplaceLaw, laplace_rows


class CoordinateNoise(StrEnum):
    """A choice of the noise on each coordinate: clip-Laplace, which stays in the range of the values, or the classic
    Laplace mechanism.
    """

    CLIP_LAPLACE = "clip_laplace"
    LAPLACE = "laplace"


def check_coordinate_noise(noise: object) -> None:
    """Raise ValueError for an unknown kind of noise; the message lists the known ones."""
    if noise not in tuple(CoordinateNoise):
        raise ValueError(
            "noise, the noise on each coordinate, must be one of: "
            f"{nearest(str(noise), tuple(CoordinateNoise))}; got {noise!r}"
        )


@dataclass(frozen=True, kw_only=True)
class BudgetedReports(Protection):
    """A protection in which clients add noise to every coordinate of a clipped update, and the server averages the
    reports and corrects the mean if the noise is biased.

    Args:
        radius: clip bound of each number.
        budgets: epsilon of one coordinate, for each client; a client that is not in the plan has the smallest.
        shuffled: whether each coordinate is shuffled separately.
        noise: one of ``CoordinateNoise``.
    """

    radius: float
    budgets: tuple[float, ...]
    shuffled: bool
    noise: str = CoordinateNoise.CLIP_LAPLACE
    sums: ClassVar[Sums] = "unweighted mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        budgets = budgets_of(context.senders, self.budgets).expand(updates.present.shape)
        noised = laplace_rows if self.noise == CoordinateNoise.LAPLACE else randomised_rows
        reports = updates.with_values(noised(updates.values, budgets, self.radius, rng))
        return replace(reports, side={**updates.side, "budget": budgets.masked_fill(~updates.present, 0)})

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return shuffle_coordinates(reports, rng) if self.shuffled else reports

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if self.noise == CoordinateNoise.LAPLACE:
            # Classic Laplace noise is unbiased, so its mean needs no calibration.
            return received.values.sum(1) / received.present.sum(1, keepdim=True).clamp_min(1)
        return calibrated_mean(received, self.radius)

    def law(self, observer: Observer, plan: Plan, client: int) -> ClipLaplaceLaw | LaplaceLaw | None:
        """Return the distribution of what the observer receives of one client: its report or, behind a shuffler, one of
        all shuffled reports.
        """
        mixing = mixing_for(observer, shuffled=self.shuffled)
        if mixing is None:
            return None
        (budget,) = budgets_of((client,), self.budgets).tolist()
        of = LaplaceLaw if self.noise == CoordinateNoise.LAPLACE else ClipLaplaceLaw
        return of(radius=self.radius, budget=budget, mixing=mixing)


def budgets_of(senders: tuple[int, ...], budgets: tuple[float, ...]) -> Tensor:
    """Return the budget of each report's sender as float64, array of shape ``(rows,)`` with one entry per report."""
    least = min(budgets)
    # A canary client has no budget in the plan; the smallest gives it the most noise.
    each = [budgets[sender] if sender < len(budgets) else least for sender in senders]
    return torch.tensor(each, dtype=torch.float64)


def mixing_for(observer: Observer, *, shuffled: bool) -> Mixing | None:
    """Return how a shuffler mixes the reports that this observer receives; None if the observer does not receive
    reports.
    """
    if observer.rank == UPLOADS.rank:
        return Mixing.NONE
    return Mixing.COORDINATES if shuffled and observer.rank == SHUFFLED.rank else None
