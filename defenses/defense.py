"""Define the base classes of defenses, which calibrate a protection to a public plan and state privacy claims."""

import dataclasses
import math
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ..audit.claim import NOT_PROVABLE, PROVABLE, Adjacency, Claim, Unit, Value
from ..audit.observer import UPLOADS
from ..fl.fields import check_fields, check_positive

if TYPE_CHECKING:  # The accounting imports this file, and needs no torch.
    from ..fl.plan import Plan
    from ..fl.protection import Protection

_LEAST_EPSILON, _MOST_EPSILON = 1e-6, 1e12
_BOUNDS = (1e-12, 1e12)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A calibrated protection (what clients and server run) together with the privacy claims that its defense states; a
    defense may state none.

    Args:
        spending: by ``claim_id``, the epsilon that the claim's accountant gives for the first rounds at the same noise
            (``accounting.spending``). A claim has no entry where the cost of a round depends on the data, or where a
            paper's own formula does not compose.
    """

    protection: "Protection"
    claims: tuple[Claim, ...]
    spending: Mapping[str, Callable[[int], float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DefensePart:
    """The base class of all defenses, of every kind of federated learning. Its fields hold the public configuration,
    and their types state which values they refuse (``fl.fields.check_fields``); data and random generators are passed
    to methods as arguments.

    ``control`` marks a defense that is broken on purpose: it states a claim that it does not satisfy, and an audit must
    refute it. One file holds one defense.
    """

    version: ClassVar[str] = "1"
    control: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def fields(self) -> dict[str, object]:
        """Return the configuration as a dictionary from field names to values; it identifies the defense in the result
        rows of runs.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class Defense(DefensePart, ABC):
    """The base class of defenses of a federation of clients (horizontal federated learning)."""

    def prepare(self, plan: "Plan") -> Prepared:
        """Calibrate the protection to the federation's public plan, and state its privacy claims.

        Raises:
            ValueError: if the plan violates an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} must define the method prepare(plan)")


report_claim = partial(
    Claim,
    unit=Unit.REPORT,
    adjacency=Adjacency.REPLACE_ONE,
    observer=UPLOADS,
    dp_model="local",
    sampling="none assumed",
    trust="nobody",
)
"""Builds a claim of local DP, for any two reports of a client; the adversary is the server, which observes individual
updates.
"""


def restated(prepared: Prepared, **words: str) -> Prepared:
    """Return the same protection with changed claims: ``words`` maps names of claim fields to new values, which replace
    those of every claim.
    """
    # A claim's id is a hash of its fields, so the spending must be filed under the new id.
    claims = {old.claim_id: dataclasses.replace(old, **words) for old in prepared.claims}  # type: ignore[arg-type]
    return Prepared(
        protection=prepared.protection,
        claims=tuple(claims.values()),
        spending={claims[old].claim_id: spent for old, spent in prepared.spending.items()},
    )


def check_budget(epsilon: float, delta: float) -> None:
    """Raise ValueError unless 1e-6 <= epsilon <= 1e12 and 0 < delta < 1."""
    check_epsilon(epsilon)
    check_delta(delta)


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Raise ValueError unless ``epsilon`` is in [1e-6, 1e12].

    Below, the noise exceeds what float32 reports can represent; above, no accountant computes anything.
    """
    check_positive(name, epsilon)
    if epsilon < _LEAST_EPSILON:
        raise ValueError(
            f"{name} must be >= {_LEAST_EPSILON:g}, because float32 reports cannot represent the noise of a "
            f"smaller one, got {epsilon!r}"
        )
    if epsilon > _MOST_EPSILON:
        raise ValueError(
            f"{name} must be <= {_MOST_EPSILON:g}: the accountants cannot compute with a larger one, got {epsilon!r}"
        )


def check_bound(name: str, value: float) -> None:
    """Raise ValueError unless a clip bound is in [1e-12, 1e12], so that float32 can represent it."""
    check_positive(name, value)
    if not _BOUNDS[0] <= value <= _BOUNDS[1]:
        raise ValueError(
            f"{name} must be in [{_BOUNDS[0]:g}, {_BOUNDS[1]:g}], which float32 reports can represent, got {value!r}"
        )


def check_delta(delta: float, name: str = "delta") -> None:
    """Raise ValueError unless ``delta`` is in (0, 1): noise with an unbounded privacy loss has no finite epsilon at
    delta 0.
    """
    if not (_is_number(delta) and 0 < delta < 1):
        raise ValueError(f"{name} must be in (0, 1), got {delta!r}")


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless the fraction ``value`` is in (0, 1)."""
    if not (_is_number(value) and 0 < value < 1):
        raise ValueError(f"{name} must be in (0, 1), got {value!r}")


def check_delta_or_zero(delta: float, name: str = "delta") -> None:
    """Raise ValueError unless ``delta`` is in (0, 1), or 0, at which a pure mechanism has a finite epsilon too."""
    # ``false`` equals 0 to Python.
    if isinstance(delta, bool) or delta != 0:
        check_delta(delta, name)


def check_whole(name: str, value: int) -> None:
    """Raise ValueError unless ``value`` is a whole number >= 1."""
    if value < 1 or int(value) != value:
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def _field(check: Callable[[float, str], None]) -> Callable[[str, float], None]:
    """Takes the name first, as the types of fields do."""
    return lambda name, value: check(value, name)


Epsilon = Annotated[float, _field(check_epsilon)]
Delta = Annotated[float, _field(check_delta)]
DeltaOrZero = Annotated[float, _field(check_delta_or_zero)]
Bound = Annotated[float, check_bound]
"""A clip bound."""
Share = Annotated[float, check_share]
"""A number in (0, 1)."""
Variant = Literal["corrected", "as_published"]
"""Which version of a defense runs: one with a valid proof, or the paper's own."""


def variant_of(defense: Defense) -> str:
    """Return which version of the defense runs, "corrected" or "as_published"; empty string if the defense has only one
    version.
    """
    return str(getattr(defense, "variant", ""))


def provable(epsilon: float, *, else_none: str = "no theorem covers it") -> dict[str, Value]:
    """Return an extra public parameter for a paper's own claim: the epsilon that can be proved at the claim's delta or,
    if no finite one can be proved, the reason.
    """
    return {PROVABLE: epsilon} if math.isfinite(epsilon) else {NOT_PROVABLE: f"none: {else_none}"}


def _is_number(value: object) -> bool:
    # A suite file's ``true`` is a number to Python, and no budget.
    return isinstance(value, Real) and not isinstance(value, bool)
