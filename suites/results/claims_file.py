"""Define the fields of claims.json, which lists the privacy claims that a run's defenses state (schema claims-1)."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import Observer
from ..config.source import ConfigError

SCHEMA = "claims-1"
Rate = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    # JSON has no infinity; an unknown field could be a restriction of the claim that this version would overlook.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class GaussianCurveFields(_Part):
    """The stored fields of the trade-off curve of a mu-GDP claim."""

    family: Literal["gaussian"]
    mu: float = Field(ge=0)
    """Sensitivity over noise standard deviation."""


class ProfileCurveFields(_Part):
    """The stored fields of a privacy profile: for each epsilon, one delta for adding a unit and one for removing it."""

    family: Literal["profile"]
    epsilons: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]
    delta_remove: list[Rate]
    """At each epsilon the hockey-stick divergence of the output with the unit from the output without it."""
    delta_add: list[Rate]
    """The same in the opposite direction: from the output with the unit."""


class ClaimFields(_Part):
    """The stored fields of one claim, which states (epsilon, delta)-DP for a unit and adjacency, against an observer,
    over rounds.
    """

    epsilon: float = Field(gt=0)
    delta: float = Field(ge=0, lt=1)
    unit: Unit
    """What distinguishes two neighbouring datasets."""
    adjacency: Adjacency
    """How the unit differs between neighbours: added or removed, replaced, or set to zero."""
    observer: str = Field(json_schema_extra={"pattern": f"^{Observer.pattern()}$"})
    """The adversary: ``uploads``, ``shuffled``, ``aggregate``, ``global_models``, ``answers`` or ``final_model``, each
    with ``+participation`` or ``+masked_words`` where it receives these too.
    """
    rounds: int = Field(ge=1)
    """Rounds that the claim covers, composed."""
    dp_model: Literal["central", "local", "shuffle", "distributed"]
    mechanism: str
    parameters: dict[str, float | int | str | bool]
    """Parameters of the mechanism."""
    accountant: str
    """Name and version of the accountant that computed epsilon."""
    sampling: str
    """What the accountant assumes about the sampling of cohorts and lots."""
    trust: str
    """Which parties the claim trusts, and to do what."""
    source: str
    """The theorem."""
    subjects: str = "all"
    """``all``, or the users of one budget."""
    part: str = "joint"
    """``joint``, or the one layer or coordinate that the claim is about."""
    curve: Annotated[GaussianCurveFields | ProfileCurveFields, Field(discriminator="family")] | None = None
    """The tight trade-off curve, where the defense states one: it can be refuted independently of epsilon."""


if TYPE_CHECKING:
    _Claim = Claim
else:
    # The fields check and describe the JSON; readers of the file receive the claim itself.
    _Claim = Annotated[ClaimFields, AfterValidator(lambda fields: Claim.from_dict(fields.model_dump()))]


class StatedClaim(_Part):
    """A stored claim together with the defense that states it on one federation."""

    claim_id: str
    """Hash of the claim: a control has the same one as the correct defense whose claim it breaks."""
    defense: str
    """Label of the defense in the suite."""
    federation: str
    """Name of the federation whose plan it was calibrated on."""
    control: bool
    """True for a control, which breaks its claim on purpose, so that an audit should refute it."""
    variant: str = ""
    """``as_published``: the claim of the paper, which is under test; else empty."""
    spent: list[tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(ge=0)]]] = []
    """Pairs (rounds so far, epsilon that the claim's accountant gives for them at the claim's delta and noise); empty
    where the defense does not publish it.
    """
    claim: _Claim

    @property
    def key(self) -> tuple[str, str, str]:
        """The federation, defense and claim_id, which together identify a claim within a run."""
        return self.federation, self.defense, self.claim_id


class ClaimsFile(_Part):
    """The content of claims.json: every claim that the defenses of one run state."""

    schema_: Literal["claims-1"] = Field(alias="schema")
    claims: list[StatedClaim]


def stated_claims(content: dict[str, Any]) -> tuple[StatedClaim, ...]:
    """Return the claims of a parsed claims.json; raise pydantic.ValidationError for content that does not fit the
    schema.
    """
    # Read as JSON: strict mode then still accepts the text of an enum and a list for a tuple.
    return tuple(ClaimsFile.model_validate_json(json.dumps(content), strict=True).claims)


@dataclass(frozen=True, kw_only=True)
class PlannedClaim:
    """A privacy claim together with the defense that states it and the federation that it is about.

    Args:
        variant: ``as_published`` where it is the paper's claim, which the suite tests; else empty.
        marks: numbers of rounds at which curves over the rounds have a point.
        spending: function from a number of rounds to the epsilon that the claim's accountant gives for these first
            rounds; None where the defense has none.
    """

    defense: str
    federation: str
    control: bool
    claim: Claim
    variant: str = ""
    marks: tuple[int, ...] = ()
    spending: Callable[[int], float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as stored in claims.json, with epsilon after several numbers of rounds; raise ConfigError if
        the accountant fails.
        """
        # Curves end where the claim ends: the accountant promises nothing beyond its rounds.
        marks = [rounds for rounds in self.marks if rounds <= self.claim.rounds]
        spent = [] if self.spending is None else [[rounds, self.spending(rounds)] for rounds in marks]
        for rounds, epsilon in spent:
            # True and False are ints in Python, and no epsilon.
            if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
                raise ConfigError(
                    f"defenses.{self.defense}: spending({rounds}), the epsilon after {rounds} rounds, must "
                    f"be a number >= 0, got {epsilon!r}"
                )
        return {
            "claim_id": self.claim.claim_id,
            "defense": self.defense,
            "federation": self.federation,
            "control": self.control,
            "variant": self.variant,
            "spent": spent,
            "claim": self.claim.to_dict(),
        }
