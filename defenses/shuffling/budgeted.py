"""Perturb each coordinate at the client's own budget, and hide the senders by shuffling.

Hide the senders of whole reports, or of each coordinate separately, by shuffling (Bittau et al. 2017).

Perturb each coordinate at the client's own budget; the defenses UniS, LDP-Min, PLDP and APES share this protection.

These defenses differ in their budgets, in their noise, in whether there is a shuffler, and in what they may claim.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from ...audit.observer import SHUFFLED, UPLOADS, Observer
from ...audit.wording import nearest
from ...fl.laws import Law, Mixing
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import uniform
from .clip_laplace import ClipLaplaceLaw, LaplaceLaw, calibrated_mean, laplace_rows, randomised_rows

_CHUNK = 1 << 21


def shuffle_coordinates(reports: Message, rng: np.random.Generator) -> Message:
    """Shuffle each coordinate separately among the reports of clients that take part. Each array of side information,
    such as the clients' budgets, is shuffled by a permutation of its own.

    Absent rows come last, because their places would reveal who was present. The result is the multiset of every
    coordinate, without any link between the numbers of one client.
    """
    count = reports.present.sum(1)
    arrived = _first(count, reports.present.shape[1])
    values = torch.zeros_like(reports.values)
    # A full cohort needs no selection of rows in each replica.
    if bool(reports.present.all()):
        _permute_columns(reports.values, values, rng)
    else:
        for replica, there in enumerate(reports.present):
            rows = reports.values[replica : replica + 1, there]
            _permute_columns(rows, values[replica : replica + 1, : rows.shape[1]], rng)
    side = {name: _permuted_rows(array, reports.present, rng) for name, array in reports.side.items()}
    return replace(reports, values=values, present=arrived, senders=None, side=side)


def shuffle_rows(reports: Message, rng: np.random.Generator) -> Message:
    """Shuffle whole reports; the reports of clients that do not take part come last."""
    # Side arrays would have to be permuted together with the rows, and might identify them.
    if reports.side:
        raise ValueError(f"a shuffler of whole reports must not forward side information, got {sorted(reports.side)}")
    values = _permuted_rows(reports.values, reports.present, rng)
    arrived = _first(reports.present.sum(1), reports.present.shape[1])
    return replace(reports, values=values, present=arrived, senders=None)


def _first(count: Tensor, rows: int) -> Tensor:
    return torch.arange(rows).expand(len(count), rows) < count.unsqueeze(1)


def _permute_columns(rows: Tensor, out: Tensor, rng: np.random.Generator) -> None:
    """In blocks of columns, so that ten thousand clients' reports need no second copy."""
    width = max(1, _CHUNK // max(1, rows.shape[0] * rows.shape[1]))
    for start in range(0, rows.shape[2], width):
        block = np.ascontiguousarray(rows[:, :, start : start + width].numpy().transpose(0, 2, 1))
        shuffled = rng.permuted(block, axis=2, out=block)
        out[:, :, start : start + width] = torch.from_numpy(shuffled.transpose(0, 2, 1))


def _permuted_rows(array: Tensor, present: Tensor, rng: np.random.Generator) -> Tensor:
    """The present rows in a random order, then the others, which are zeros."""
    order = uniform(rng, tuple(present.shape), dtype=torch.float64).masked_fill(~present, 2.0).argsort(dim=1)
    return array[torch.arange(len(array)).unsqueeze(1), order]


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
    shuffled: bool = True
    noise: str = CoordinateNoise.CLIP_LAPLACE
    sums = "unweighted mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        budgets = budgets_of(context.senders, self.budgets).expand(updates.present.shape)
        reports = updates.with_values(self.drawn(updates.values, budgets, rng))
        return replace(reports, side={**updates.side, "budget": budgets.masked_fill(~updates.present, 0)})

    def drawn(self, values: Tensor, budgets: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw the reports of client vectors at their budgets; see ``noised_rows``."""
        noised = laplace_rows if self.noise == CoordinateNoise.LAPLACE else randomised_rows
        return noised(values, budgets, self.radius, rng)

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return shuffle_coordinates(reports, rng) if self.shuffled else reports

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if self.noise == CoordinateNoise.LAPLACE:
            # Classic Laplace noise is unbiased, so its mean needs no calibration.
            return received.values.sum(1) / received.present.sum(1, keepdim=True).clamp_min(1)
        return calibrated_mean(received, self.radius)

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        """Return the distribution of what the observer receives of one client: its report or, behind a shuffler, one of
        all shuffled reports.
        """
        mixing = mixing_for(observer, shuffled=self.shuffled)
        if mixing is None:
            return None
        (budget,) = budgets_of((client,), self.budgets).tolist()
        of: type[LaplaceLaw | ClipLaplaceLaw] = LaplaceLaw if self.noise == CoordinateNoise.LAPLACE else ClipLaplaceLaw
        return of(radius=self.radius, budget=budget, mixing=mixing)


def budgets_of(senders: tuple[int, ...], budgets: tuple[float, ...]) -> Tensor:
    """Return the budget of each report's sender as float64, array of shape ``(rows,)`` with one entry per report."""
    # A canary client has no budget in the plan; the smallest gives it the most noise. It is looked for only then: each
    # of fifty thousand clients asks for its own budget.
    least = min(budgets) if max(senders, default=0) >= len(budgets) else 0.0
    each = [budgets[sender] if sender < len(budgets) else least for sender in senders]
    return torch.tensor(each, dtype=torch.float64)


def mixing_for(observer: Observer, *, shuffled: bool) -> Mixing | None:
    """Return how a shuffler mixes the reports that this observer receives; None if the observer does not receive
    reports.
    """
    if observer.rank == UPLOADS.rank:
        return Mixing.NONE
    return Mixing.COORDINATES if shuffled and observer.rank == SHUFFLED.rank else None
