"""Clients toss coins biased by their updates, and a secure sum counts the heads (Chen et al. 2022)."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Value
from ...audit.observer import Observer
from ...fl.laws import GaussianLaw, clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..accounting.integer_noise import largest_bias
from .modular_sum import Grid, SizedGrid
from .secure_sum import (
    Budget,
    SecureSumDefense,
    SecureSumProtection,
    expected_survivors,
    least_survivors,
    most_clients,
    survivors_of,
)


@dataclass(frozen=True, kw_only=True)
class PoissonBinomialProtection(SecureSumProtection):
    """A secure-sum protection that encodes an entry x of a clipped vector by ``trials`` coin tosses with head
    probability 1/2 + theta x / clip_norm, and sends the number of heads minus half of the tosses.

    The coins are data and noise in one, so a client that drops out removes both. Theta is what the survivors of the
    invited clients may afford; it grows with their number, which is announced. ``budget`` is that of all rounds.
    """

    trials: int
    budget: Budget
    sums = "sum"

    def bias(self, survivors: int) -> float:
        """Return the bias theta of a coin in a round with ``survivors`` clients; without survivors, return the bias for
        one client.
        """
        return largest_bias(clients=max(1, survivors), trials=self.trials, **self.budget)

    def word(self, vectors: Tensor, invited: Tensor, rng: np.random.Generator) -> Tensor:
        # Theta is computed from the survivors, because only their coins arrive.
        counts = [survivors_of(count, self.dropout) for count in invited.tolist()]
        theta = self._biases(counts)[:, None]
        # Floating point may leave a clipped number just above the norm, where the probability would exceed its range.
        share = (clip(vectors.double(), self.clip_norm) / self.clip_norm).clamp(-1, 1)
        return torch.from_numpy(rng.binomial(self.trials, (0.5 + theta * share).numpy())) - self.trials // 2

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Return the unbiased estimate of the sum of updates, divided by the expected number of clients that do not
        drop out.
        """
        theta = self._biases(received.side["survivors"][:, 0].tolist())[:, None]
        total = self.sized.grid.centred(received.values[:, 0]).double() * self.clip_norm / (self.trials * theta)
        return (total / expected_survivors(context.plan, self.dropout)).float()

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        law = super().law(observer, plan, client)
        # The noise of coins is not added to the row, it is the row's own randomness.
        return None if law is None else replace(law, additive=False)

    def _biases(self, survivors: list[int]) -> Tensor:
        return torch.tensor([self.bias(count) for count in survivors], dtype=torch.float64)


class PoissonBinomial(SecureSumDefense):
    """A defense for client-level DP by biased coin tosses in a secure sum; the estimate is unbiased, and no number can
    wrap around (Chen, Ozgur, Kairouz 2022).

    Rows are clipped in L2 and sent without rotation, one count per coordinate, each scaled by the whole clip norm: the
    bound (``accounting.poisson_binomial.row_rdp``) adds up squares, so the noise is that of a Gaussian of the same
    budget. The paper pays for each coordinate as for the largest, and makes all equally small by Kashin's
    representation; neither that nor a rotation would save noise here.

    The claim relies on the survivors' coins alone, and of these on the share 1 - 2 theta that is fair whatever the data
    are. More ``bits`` mean more coins, a smaller theta and a smaller cost; where theta would exceed 1/4 the noise is
    larger than the budget requires. The published law is a Gaussian with the variance of fair coins, of which a row of
    full length takes 4 theta^2 of its own share at most.
    """

    mechanism = "sum of binomial counts of biased coins"
    source = "mechanism: Chen, Ozgur and Kairouz 2022; bound: Hoeffding 1956, Bonami 1970 and sub-Gaussian coins"

    def protected(self, plan: Plan, sized: SizedGrid) -> PoissonBinomialProtection:
        return PoissonBinomialProtection(
            clip_norm=self.clip_norm,
            dropout=self.dropout,
            drops=self.drops,
            sized=sized,
            trials=self.trials(plan),
            budget=self.budget(plan),
        )

    def more(self, plan: Plan, sized: SizedGrid) -> dict[str, Value]:
        trials = self.trials(plan)
        return {"trials": trials, "theta": sized.norm_bound / trials}

    def trials(self, plan: Plan) -> int:
        """Return the number of coin tosses per client and coordinate: the largest even number at which the total number
        of heads of all clients stays within what the secure sum can count in one coordinate.
        """
        trials: int = 2 * ((2**self.bits - 1) // (2 * most_clients(plan)))
        if trials < 2:
            raise ValueError(
                f"bits must be large enough to count two coin tosses for each of {most_clients(plan)} clients, got "
                f"{self.bits}"
            )
        return trials

    def sized(self, plan: Plan) -> SizedGrid:
        """Return the grid of the secure sum for this plan; the grid's unit is one coin toss, and a vector of norm
        ``clip_norm`` moves the expected sum by trials * theta.
        """
        survivors, trials = least_survivors(plan, self.dropout), self.trials(plan)
        # The claim must hold in the round with the fewest survivors.
        moved = trials * largest_bias(clients=survivors, trials=trials, **self.budget(plan))
        grid = Grid(step=self.clip_norm / moved, bits=self.bits)
        return SizedGrid(grid=grid, norm_bound=moved, sigma=(survivors * trials) ** 0.5 / 2)
