"""Define the base class of defenses of vertical federations, in which parties hold different columns of the people."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...audit.claim import Claim
from ...fl.vertical.protection import VerticalLaw, VerticalPlan, VerticalProtection
from ..defense import DefensePart


@dataclass(frozen=True, kw_only=True)
class VerticalPrepared:
    """A calibrated protection together with the privacy claims that its defense states; a defense may state none.

    Args:
        laws: the public descriptions of the noise that the claims rest on, by ``claim_id``.
        spending: by ``claim_id``, the epsilon that the claim's accountant gives for the first epochs at the same noise.
    """

    protection: VerticalProtection
    claims: tuple[Claim, ...]
    laws: Mapping[str, VerticalLaw] = field(default_factory=dict)
    spending: Mapping[str, Callable[[int], float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerticalDefense(DefensePart, ABC):
    """The base class of defenses of a vertical federation."""

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        """Calibrate the protection to the federation's public plan, and state its privacy claims.

        Raises:
            ValueError: if the plan violates an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} must define the method prepare(plan)")
