"""The fields that both readings of FedRE share: a budget, clip norms, scores and the way of aggregation."""

from abc import ABC
from dataclasses import dataclass
from typing import Any

from ..defense import Defense, check_budget, check_share
from .budget import check_numbers
from .score import LayerScorer

RELATIVE = "pda_pam_relative"
"""PDA-PAM with each layer's scores divided by their mean over the clients."""
AGGREGATIONS = ("pda_pam", RELATIVE, "mean")


@dataclass(frozen=True, kw_only=True)
class ScoredLayers(Defense, ABC):
    """A base class of defenses whose layers get shares of the budget by their sensitivity scores; ``FedRE`` documents
    the fields.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    clip_norms: tuple[float, ...] = (1.0,)
    scores: tuple[float, ...] = ()
    even: float = 0.5
    images: int = 2
    pixels: int | None = 32
    region: tuple[int, ...] | tuple[tuple[int, ...], ...] = ()
    aggregation: str = "pda_pam"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        for name in ("clip_norms", "scores"):
            # The dataclass is frozen, and a suite file's lists must become hashable tuples.
            object.__setattr__(self, name, check_numbers(name, getattr(self, name)))
        check_share("even", self.even)
        object.__setattr__(self, "region", _plain(self.region))
        self.scorers()
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(
                f"aggregation, the way in which the server averages reports, must be one of "
                f"{', '.join(map(repr, AGGREGATIONS))}, got {self.aggregation!r}"
            )

    def scorers(self) -> tuple[LayerScorer, ...]:
        """Return, for each privacy preference (a choice of sensitive pixels), the function that scores how sensitive
        the layers are.
        """
        # The type of the first entry distinguishes one region from a list of regions.
        several = isinstance(self.region, tuple) and self.region and isinstance(self.region[0], tuple)
        regions: Any = self.region if several else (self.region,)
        return tuple(LayerScorer(count=self.images, region=region, pixels=self.pixels) for region in regions)


def _plain(region: Any) -> Any:
    """Lists, as a suite file has them, as tuples."""
    return tuple(_plain(part) for part in region) if isinstance(region, list | tuple) else region
