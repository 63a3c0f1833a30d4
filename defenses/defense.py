"""Defense: configuration as fields, ``prepare(plan)`` calibrates and signs."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import ClassVar

from ..audit.claim import AS_PUBLISHED, NOT_PROVABLE, PROVABLE, Claim, Value
from ..fl.plan import Plan
from ..fl.protection import Protection

_LEAST_EPSILON, _MOST_EPSILON = 1e-6, 1e12
_BOUNDS = (1e-12, 1e12)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A calibrated protection and the claims that its defense signs for it; none where it claims nothing.

    ``spending``: by ``claim_id``, what the claim's accountant gives for the first so many rounds at the same noise
    (``accounting.spending``). A claim may be without: where rounds cost what the data decide, or by its own formula.
    """

    protection: Protection
    claims: tuple[Claim, ...]
    spending: Mapping[str, Callable[[int], float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Defense:
    """One defense a file. Fields are its public configuration; data and generators are arguments.

    ``control`` marks a broken twin: it signs a claim that it does not keep, and an audit must refute it.
    """

    version: ClassVar[str] = "1"
    control: ClassVar[bool] = False

    def prepare(self, plan: Plan) -> Prepared:
        """Calibrate on the public plan.

        Raises:
            ValueError: if the plan breaks an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} does not define prepare(plan)")

    def fields(self) -> dict[str, object]:
        """The configuration by name: part of a cell's identity."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def broken(honest: Prepared, kind: Callable[..., Protection], **more: object) -> Prepared:
    """What a control prepares: the claims of its twin, and a protection made of the twin's own fields and ``more``."""
    return Prepared(protection=kind(**vars(honest.protection), **more), claims=honest.claims, spending=honest.spending)


def restated(prepared: Prepared, **words: str) -> Prepared:
    """The same noise and the same budget, claimed in other ``words``: fields of a claim."""
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
    """Raise ValueError unless in [1e-6, 1e12]: below, noise outgrows what float32 reports carry, and no accountant
    computes what is beyond.
    """
    check_positive(name, epsilon)
    if epsilon < _LEAST_EPSILON:
        raise ValueError(f"{name} must be >= {_LEAST_EPSILON:g}, or no report can carry its noise, got {epsilon!r}")
    if epsilon > _MOST_EPSILON:
        raise ValueError(f"{name} must be <= {_MOST_EPSILON:g}, which hides nothing already, got {epsilon!r}")


def check_bound(name: str, value: float) -> None:
    """Raise ValueError unless a clip bound is a number in [1e-12, 1e12]: no float32 report carries others."""
    check_positive(name, value)
    if not _BOUNDS[0] <= value <= _BOUNDS[1]:
        raise ValueError(f"{name} must be in [{_BOUNDS[0]:g}, {_BOUNDS[1]:g}], which reports can carry, got {value!r}")


def check_delta(delta: float, name: str = "delta") -> None:
    """Raise ValueError unless 0 < delta < 1: at delta 0 noise with unbounded losses keeps no epsilon at all."""
    if not (_is_number(delta) and 0 < delta < 1):
        raise ValueError(f"{name} must be in (0, 1), got {delta!r}")


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless 0 < ``value`` < 1."""
    if not (_is_number(value) and 0 < value < 1):
        raise ValueError(f"{name} must be in (0, 1), got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    if not (_is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_variant(variant: str) -> None:
    """Raise ValueError unless the variant is "corrected", what is provable, or "as_published", the paper's form."""
    if variant not in ("corrected", AS_PUBLISHED):
        raise ValueError(f'variant must be "corrected" or "as_published", got {variant!r}')


def variant_of(defense: Defense) -> str:
    """The defense's ``variant``; empty where it knows none."""
    return str(getattr(defense, "variant", ""))


def provable(epsilon: float, *, else_none: str = "no theorem covers it") -> dict[str, Value]:
    """What a claim as published says of itself: the epsilon that is proved of its mechanism at its delta, or why none
    is, where that is infinite.
    """
    return {PROVABLE: epsilon} if math.isfinite(epsilon) else {NOT_PROVABLE: f"none: {else_none}"}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
