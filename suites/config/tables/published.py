"""Define a published value: one that a paper reports, as quoted in a suite file."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ....audit.claim import Unit
from ....audit.wording import nearest
from ....fl.utility import UTILITIES

_LARGEST = 1e12


class Published(BaseModel):
    """A value reported in a paper, for comparison with the value that the run measures."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    federation: str
    """The federation of the suite with the paper's settings."""
    defense: str
    """The defense of the suite that the value is about."""
    metric: str = Field(min_length=1)
    """A metric of the utility, or of the named ``attack``; or ``epsilon``, that of the stated claim about ``unit``."""
    attack: str | None = None
    """The attack of the suite that the value is about; left out for utility and for ``epsilon``."""
    unit: Unit | None = None
    """The unit of the claim whose ``epsilon`` the paper reports; left out for every other metric."""
    value: float = Field(strict=True, ge=-_LARGEST, le=_LARGEST)
    """The reported value, in the metric's own unit."""
    source: str = Field(min_length=1)
    """The place in the paper, such as its table or section."""

    @model_validator(mode="after")
    def _unit_of_epsilon(self) -> "Published":
        if (self.metric == "epsilon") != (self.unit is not None):
            raise ValueError(
                '"unit" (the unit of a claim) must be set for metric "epsilon" and left out for every other metric, '
                f"got metric {self.metric!r} and unit {self.unit}"
            )
        return self

    @model_validator(mode="after")
    def _metric_of_its_kind(self) -> "Published":
        if self.unit is not None:
            if self.attack is not None:
                raise ValueError('metric "epsilon" belongs to a claim, not to an attack: leave the key attack out')
        # A misspelt metric would otherwise be listed as "not measured" in the report.
        elif self.attack is None and self.metric not in UTILITIES:
            known = nearest(self.metric, (*UTILITIES, "epsilon"))
            raise ValueError(
                f"metric {self.metric!r} is no utility metric ({known}): set the key attack to the attack that this "
                "metric belongs to"
            )
        elif self.attack is not None and self.metric in UTILITIES:
            raise ValueError(f"metric {self.metric!r} measures utility, not an attack: leave the key attack out")
        return self
