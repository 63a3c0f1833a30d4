"""Split a pure-DP budget over the releases of a vertical federation."""

from abc import ABC
from dataclasses import dataclass

from ...audit.claim import Claim
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION, each_of
from ..accounting.spending import Spending, pure_spending
from ..defense import check_delta, check_epsilon
from .defense import VerticalDefense

MOST = 300.0
"""Largest epsilon of one release: a larger one hides nothing."""


@dataclass(frozen=True, kw_only=True)
class PureVerticalDefense(VerticalDefense, ABC):
    """A base class of defenses whose releases each have a pure epsilon.

    At delta 0 all releases get equal parts of the claimed epsilon; at another delta each may spend what exact
    composition allows (Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon, delta: the budget of all releases about one person together.
    """

    epsilon: float = 4.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        # Delta 0 is allowed here, unlike for Gaussian noise, but ``false`` is not a number.
        if isinstance(self.delta, bool) or self.delta != 0:
            check_delta(self.delta)

    @property
    def accountant(self) -> str:
        """The name of the composition that the claims rest on."""
        return EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION

    def each_of(self, releases: int) -> float:
        """Return the epsilon that each of ``releases`` releases may spend.

        Raises:
            ValueError: above 300, where a release hides nothing.
        """
        each = each_of(releases, epsilon=self.epsilon, delta=self.delta)
        if each > MOST:
            raise ValueError(
                f"each release must have an epsilon of at most {MOST:g}, because a larger one hides nothing; got a "
                f"total epsilon of {self.epsilon} for {releases} releases"
            )
        return each

    def spent(
        self, claims: tuple[Claim, ...], *, each: float, releases: int = 1, once: bool = False
    ) -> dict[str, Spending]:
        """Return, by the claims' ids, the epsilon of the first epochs: ``releases`` of epsilon ``each`` in every epoch,
        or in the first one alone.
        """
        found: dict[str, Spending] = {}
        for claim in claims:
            found |= pure_spending(
                claim, each=each, releases=releases, participations=(lambda epochs: 1) if once else int
            )
        return found
