"""Published: a figure that a paper prints, as a suite file names it."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...audit.claim import Unit
from ...audit.nearest import nearest
from ...fl.utility import UTILITIES

_LARGEST = 1e12


class Published(BaseModel):
    """A figure that a paper prints, to stand beside the run's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    federation: str
    defense: str
    metric: str = Field(min_length=1)
    """Of the utility, or of the attack that is named; ``epsilon``: of the claim about ``unit`` that is signed."""
    attack: str | None = None
    unit: Unit | None = None
    value: float = Field(strict=True, ge=-_LARGEST, le=_LARGEST)
    source: str = Field(min_length=1)
    """Where it stands in the paper."""

    @model_validator(mode="after")
    def _unit_of_epsilon(self) -> "Published":
        if (self.metric == "epsilon") != (self.unit is not None):
            raise ValueError('metric "epsilon" goes with the unit of the claim that it is of, and no other metric does')
        return self

    @model_validator(mode="after")
    def _metric_of_its_kind(self) -> "Published":
        if self.unit is not None:
            if self.attack is not None:
                raise ValueError('metric "epsilon" is of a claim, not of an attack: name no attack')
        elif self.attack is None and self.metric not in UTILITIES:
            known = nearest(self.metric, (*UTILITIES, "epsilon"))
            raise ValueError(f"metric {self.metric!r} is of no utility ({known}): of which attack is it?")
        elif self.attack is not None and self.metric in UTILITIES:
            raise ValueError(f"metric {self.metric!r} is the utility's: name no attack")
        return self
