"""Define the base class of local DP defenses that report sampled coordinates as levels of a public grid."""

from abc import ABC
from dataclasses import dataclass

from ....audit.claim import Value
from ....fl.plan import Plan
from ..defense import SampledDefense
from .grid import check_levels


@dataclass(frozen=True, kw_only=True)
class GriddedDefense(SampledDefense, ABC):
    """A base class of local DP defenses that round each sent coordinate without bias to one of ``levels`` evenly spaced
    numbers from -radius to radius.

    The step is randomised as a category and decoded, without bias, by the client.

    Args:
        levels: of the grid, 2 to 12.
    """

    levels: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.levels)

    def published(self, plan: Plan) -> dict[str, Value]:
        return super().published(plan) | {"levels": self.levels}
