"""Claims file: what claims.json holds, field by field: the claims that a run's defenses signed (schema claims-1)."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...audit.claim import Adjacency, Unit
from ...audit.observer import Observer

SCHEMA = "claims-1"
Rate = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    # Numbers of JSON have no infinity; a field that nobody knows may be another version's promise.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class GaussianCurveFields(_Part):
    """The trade-off curve of mu-GDP."""

    family: Literal["gaussian"]
    mu: float = Field(ge=0)
    """Sensitivity over noise standard deviation."""


class ProfileCurveFields(_Part):
    """A privacy profile: at each epsilon the delta of each direction."""

    family: Literal["profile"]
    epsilons: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]
    delta_remove: list[Rate]
    """At each epsilon the hockey-stick divergence of the world with the unit from the one without it."""
    delta_add: list[Rate]
    """The same the other way round."""


class ClaimFields(_Part):
    """One privacy claim: (epsilon, delta)-DP of one unit under one adjacency, against one observer, over rounds."""

    epsilon: float = Field(gt=0)
    delta: float = Field(ge=0, lt=1)
    unit: Unit
    """What one neighbouring data set has and the other has not, or has changed."""
    adjacency: Adjacency
    """How the unit differs between neighbours: there or not, another one, or set to zero."""
    observer: str = Field(json_schema_extra={"pattern": f"^{Observer.pattern()}$"})
    """Against whom: ``uploads``, ``shuffled``, ``aggregate``, ``global_models`` or ``final_model``, each with
    ``+participation`` or ``+masked_words`` where it is told these too.
    """
    rounds: int = Field(ge=1)
    """Rounds that the claim covers, composed."""
    dp_model: Literal["central", "local", "shuffle", "distributed"]
    mechanism: str
    parameters: dict[str, float | int | str | bool]
    """Of the mechanism."""
    accountant: str
    """Name and version of what computed epsilon."""
    sampling: str
    """What the accountant assumes of cohorts and lots."""
    trust: str
    """Whom the claim trusts, and to do what."""
    source: str
    """The theorem."""
    subjects: str = "all"
    """All, or the users of one budget."""
    part: str = "joint"
    """``joint``, or the one layer or coordinate that it is about."""
    curve: Annotated[GaussianCurveFields | ProfileCurveFields, Field(discriminator="family")] | None = None
    """The tight trade-off curve, where one is signed: it can be refuted apart from epsilon."""


class SignedFields(_Part):
    """A claim and who signed it."""

    claim_id: str
    """Hash of the claim: a control and its honest twin sign the same one."""
    defense: str
    """Label of the defense in the suite."""
    federation: str
    """Name of the federation whose plan it was calibrated on."""
    control: bool
    """True for a broken twin, whose claim has to be refuted."""
    variant: str = ""
    """``as_published``: the paper's claim, which is on trial; else empty."""
    spent: list[tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(ge=0)]]] = []
    """Rounds so far, and the epsilon that the claim's accountant gives for them at its delta and noise; of a defense
    that does not say, none.
    """
    claim: ClaimFields


class ClaimsFile(_Part):
    """Every claim that the defenses of one run signed."""

    schema_: Literal["claims-1"] = Field(alias="schema")
    claims: list[SignedFields]
