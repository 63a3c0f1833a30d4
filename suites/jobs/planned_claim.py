"""Define which defense states which privacy claim on which federation, in the form stored in claims.json."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...audit.claim import Claim
from ..config.source import ConfigError


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
