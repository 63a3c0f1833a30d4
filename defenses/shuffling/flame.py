"""FLAME shuffles each coordinate; clients report randomly drawn coordinates and dummies replace the rest (Liu et al.
2021).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.observer import SHUFFLED, Observer
from ...fl.fields import Positive
from ...fl.laws import Mixing
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import uniform
from ..accounting.blanket import laplace
from ..accounting.pld import Profile
from .budgeted import shuffle_coordinates
from .claims import AssuredCohort, LocalPair, SampledRelease, Tighter
from .clip_laplace import ClipLaplaceLaw, calibrated_mean, randomised_rows
from .personal import OneBudget


@dataclass(frozen=True, kw_only=True)
class FLAMEProtection(Protection):
    """A protection in which a report holds clip-Laplace values of randomly drawn coordinates, together with their
    positions.

    The shuffler adds reports of 0 for the other coordinates, so that every coordinate has as many reports as there are
    clients, and shuffles each coordinate separately.
    """

    radius: float
    local_epsilon: float
    rate: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Absent clients draw too, so that who takes part does not shift the draws of others.
        drawn = (uniform(rng, tuple(updates.values.shape)) < self.rate) & updates.present.unsqueeze(-1)
        budgets = self._budgets(updates)
        rows = randomised_rows(updates.values, budgets, self.radius, rng).masked_fill_(~drawn, 0)
        side = {**updates.side, "budget": budgets.masked_fill(~updates.present, 0), "drawn": drawn}
        # The positions are sent as the indices of a sparse report, and not as this mask.
        return replace(updates, values=rows, side=side, unsent=updates.unsent | {"drawn"})

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # The shuffler must not pass on which coordinates were drawn.
        side = {name: array for name, array in reports.side.items() if name != "drawn"}
        # Dummies come from the clients' randomiser at 0, so that they are outputs of the same local mechanism.
        zeros = torch.zeros_like(reports.values)
        dummies = randomised_rows(zeros, self._budgets(reports), self.radius, rng)
        filled = torch.where(reports.side["drawn"], reports.values, dummies)
        return shuffle_coordinates(replace(reports, side=side).with_values(filled), rng)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return calibrated_mean(received, self.radius, rate=self.rate)

    def law(self, observer: Observer, plan: Plan, client: int) -> ClipLaplaceLaw | None:
        """Return the distribution of one number behind the shuffler, which is either a client's report of a coordinate
        or a dummy.
        """
        if observer.rank != SHUFFLED.rank:
            return None
        return ClipLaplaceLaw(radius=self.radius, budget=self.local_epsilon, mixing=Mixing.COORDINATES, rate=self.rate)

    def _budgets(self, rows: Message) -> Tensor:
        return torch.full(rows.present.shape, self.local_epsilon, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class FLAME(OneBudget):
    """A defense in which clients send sampled coordinates to a shuffler, which adds dummy reports. The defense is
    SS-Double of the FLAME paper or, if ``rate`` is 1, SS-Simple of the same paper.

    Claims, replace-one: a client's whole report over all rounds, and one coordinate of one round. The adversary is the
    analyser behind the shuffler. Each coordinate is drawn with probability ``rate``, independently of all others, and
    the dummies are reports of 0 by the clients' own randomiser. The number that represents a client in a coordinate, a
    report or a dummy, is therefore a local randomiser itself, and those of the others hide it where they are of its
    privacy blanket, as all dummies are. Amplification by sampling, by shuffling and all d coordinates compose.
    (With a fixed number of coordinates they would not be independent.)

    The server that observes individual updates sees which coordinates were drawn, which reveals nothing about the
    values.

    Args:
        epsilon, delta: the budget of all coordinates of all rounds, to which the local one is calibrated.
        coordinate_delta: delta of the claim about one coordinate.
        local_epsilon: budget of one drawn coordinate, at most 50; where it is given nothing is calibrated.
        rate: probability that a client reports a coordinate, in (0, 1].
        radius: clip bound of each coordinate of an update.
    """

    mechanism = "clip-Laplace noise on sampled coordinates, dummy values elsewhere"
    source = "Balle et al. 2019, Lemma 5.3, of the randomiser with its dummy values"
    trust = "the shuffler, which adds the dummy values"

    rate: Positive = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate > 1:
            raise ValueError(
                f"rate, the probability that a client reports a coordinate, must be in (0, 1], got {self.rate}"
            )

    @property
    def _else_too_large(self) -> str:
        return f" at rate {self.rate:g}, which may be larger"

    def _protection(self, budgets: tuple[float, ...]) -> FLAMEProtection:
        return FLAMEProtection(radius=self.radius, local_epsilon=budgets[0], rate=self.rate)

    def _stated(self, budgets: tuple[float, ...]) -> dict[int, dict[str, Any]]:
        return {0: {"local_epsilon": budgets[0], "rate": self.rate}}

    def _hidden(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
        epsilon0 = budgets[client]
        blanket = laplace(epsilon0=epsilon0, reports=cohort.others + 1, clipped=True).drawn(self.rate)
        # With few others the bound without a shuffler is the better one.
        return Tighter(SampledRelease(LocalPair(epsilon0), self.rate), blanket)
