"""The rule by which a test that did not refute a claim is called weak, in verdict lines and reports alike."""

from collections.abc import Iterable
from typing import Protocol

from ...audit.claim import Claim

WEAK = 3.0
"""A test is weak if the smallest true epsilon that it finds with 90 % power is more than so many times the claimed
one."""


class Stated(Protocol):
    """A claim with what a run knows of it, such as the defense that states it."""

    @property
    def claim(self) -> Claim: ...


def claimed_epsilons(claims: Iterable[Stated]) -> dict[str, float]:
    """Return the claimed epsilon of each claim by its claim_id, as result rows name it."""
    return {stated.claim.claim_id: stated.claim.epsilon for stated in claims}


def weak_because(verdict: str, detectable: float | None, epsilon: float) -> str:
    """Return why the test of a claim counts as weak; empty if it does not, or if its verdict is not NOT_REFUTED.

    Args:
        detectable: minimum detectable epsilon of the test; None if not known.
        epsilon: the claimed one, > 0.
    """
    if verdict != "NOT_REFUTED":
        return ""
    if detectable is None:
        return "how large a violation it would find is not known"
    if detectable > WEAK * epsilon:
        return f"it may miss a true ε that is {detectable / epsilon:.0f} times the claimed one"
    return ""
