"""Passive parties replace each number of a person by one of a few values, at random and once."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.fields import check_count
from ....fl.vertical.protection import Noised, VerticalLaw, VerticalPlan, VerticalProtection
from ..defense import PureVerticalDefense, VerticalPrepared, response_channel, through

MOST_BUCKETS = 1000
"""Most values of a number: a table of their number squared is computed, and a row of it for each number."""


@dataclass(frozen=True, kw_only=True)
class BucketProtection(VerticalProtection):
    """A protection in which a passive party computes everything from columns that were randomised once.

    Args:
        epsilons: by passive party, of the randomised response on the bucket of one number.
        buckets: their number.
        low, high: the values of the first and of the last bucket; all are at equal distances.
    """

    epsilons: tuple[float, ...]
    buckets: int
    low: float
    high: float

    def columns(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        last = self.buckets - 1
        places = (values.double() - self.low) * (last / (self.high - self.low))
        # A NaN counts as the lowest value: else it would be released as it is.
        buckets = torch.nan_to_num(places, nan=0.0).round().clamp(0, last).to(torch.int64)
        released = through(response_channel(self.epsilons[party], self.buckets), buckets, rng)
        return (self.low + (self.high - self.low) / last * released).to(values.dtype)


@dataclass(frozen=True, kw_only=True)
class ColumnsRandomisedResponse(PureVerticalDefense):
    """A defense of the passive parties' columns: each number is rounded to one of a few values between public bounds,
    and released through generalised randomised response, before anything is computed from it.

    The claim: one person's columns at one passive party, replaced by any others, over the whole training, against the
    active party. Columns are randomised once, so that embeddings, trained bottom models and any number of epochs are
    post-processing, and only the numbers of one person share the budget: each gets its part. A number outside the
    bounds counts as the nearest bound.

    The mechanism is that of FederBoost (Tian et al. 2023) for the buckets that its parties send, with buckets between
    public bounds: quantiles of a party's own people would depend on all of them. The parties train no trees here.

    For a prediction, the columns of a new person are randomised in the same way. That is a release of its own about
    this person; the claim is about the training alone.

    Args:
        epsilon, delta: the budget of all numbers of a person at one party.
        buckets: number of values, 2 to 1000.
        bounds: the smallest and the largest value, public.
    """

    buckets: int = 2
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("buckets", self.buckets, least=2)
        if self.buckets > MOST_BUCKETS:
            raise ValueError(f"buckets must be at most {MOST_BUCKETS}, got {self.buckets}")
        if not _are_bounds(self.bounds):
            raise ValueError(f"bounds must be two numbers, the smaller one first, got {self.bounds!r}")
        # A suite file has lists in place of tuples.
        object.__setattr__(self, "bounds", tuple(self.bounds))

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        widths = plan.network.widths[: plan.network.passive]
        each = [self.each_of(width) for width in widths]
        low, high = map(float, self.bounds)
        return self.stated(
            plan,
            BucketProtection(epsilons=tuple(each), buckets=self.buckets, low=low, high=high),
            VerticalLaw(noised=Noised.COLUMNS, channel=response_channel(each[0], self.buckets), releases=1),
            mechanism="randomised response on the buckets of columns",
            parameters={"numbers": max(widths), "number_epsilon": min(each), "buckets": self.buckets},
            accountant=self.accountant,
            source="Kairouz et al. 2016, equation 3; buckets of columns: Tian et al. 2023",
            each=each[0],
            releases=widths[0],
            once=True,
        )


def _are_bounds(bounds: object) -> bool:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        return False
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in bounds)
    return numbers and -1e30 < bounds[0] < bounds[1] < 1e30
