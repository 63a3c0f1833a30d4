"""Define the base class of LDP-Min and PLDP, which give local DP to every coordinate without a shuffler."""

from abc import ABC
from dataclasses import dataclass

from ..accounting.pld_convolution import many_epsilon
from ..defense import Defense, check_bound, check_budget, check_variant
from .claims.amplification import local_pair
from .claims.budgets import check_budget_scale
from .claims.terms import Terms
from .mechanisms.budgeted import CoordinateNoise, check_coordinate_noise


@dataclass(frozen=True, kw_only=True)
class UnshuffledBudgets(Defense, ABC):
    """A base class of LDP-Min and PLDP, two baselines without a shuffler; it computes the epsilon that can be proved
    for their reports.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    budgets: str = "uniform2"
    budget_scale: float | None = None
    radius: float = 0.1
    noise: str = CoordinateNoise.CLIP_LAPLACE
    variant: str = "corrected"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_bound("radius", self.radius)
        check_budget_scale(self.budgets, self.budget_scale)
        check_coordinate_noise(self.noise)
        check_variant(self.variant)

    def _provable(self, terms: Terms, budget: float) -> float:
        """The epsilon of all coordinates of all rounds, each at this local ``budget``."""
        return many_epsilon(local_pair(self.noise, budget), releases=terms.releases, delta=self.delta)
