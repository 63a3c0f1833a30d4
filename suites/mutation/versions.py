"""Define what every kind of mutant supplies: the correct and the broken version of a mechanism under one claim."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.check import CheckResult
from ...audit.claim import Claim
from ...defenses.controls.mutant import Mutant


class Versions(ABC):
    """The correct version of a mechanism and a broken one, which state the same claims; an unusual correct case has no
    broken one.
    """

    @property
    @abstractmethod
    def claim(self) -> Claim:
        """The claim that both versions state; of several, the first."""

    @abstractmethod
    def mutant(self) -> Mutant:
        """Return both versions as samplers, to be audited by trials.

        Raises:
            ValueError: where no trials are known that cover the claim.
        """

    def checks(self, *, broken: bool, trials: bool, seed: int = 0) -> tuple[CheckResult, ...]:
        """Run the implementation checks of the broken or of the correct version; none where nothing can be replayed.

        Args:
            trials: whether everything that is received is audited too, where no other check fails.
            seed: seed of all draws.
        """
        return ()


@dataclass(frozen=True, kw_only=True)
class MechanismVersions(Versions):
    """Both versions of a mechanism of its own, which belongs to no federation that could be replayed."""

    own: Mutant

    @property
    def claim(self) -> Claim:
        return self.own.claim

    def mutant(self) -> Mutant:
        return self.own


def check_claims(name: str, correct: Sequence[Claim], broken: Sequence[Claim]) -> None:
    """Raise ValueError unless both versions state the same claims, or a difference of verdicts would not be due to the
    bug.
    """
    if tuple(correct) != tuple(broken):
        raise ValueError(
            f"{name} (a deliberately broken defense) must state the claim of its correct version, got "
            f"{[claim.describe() for claim in broken]}"
        )
