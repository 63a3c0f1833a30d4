"""Define the base class of defenses of a transfer, which calibrate a protection to its plan and state claims."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import ANSWERS, UPLOADS
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TransferPlan
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION
from ..defense import DefensePart, check_delta, check_epsilon

TRUSTED = "the aggregator sees every teacher's answers and is trusted"
_UNITS = {
    Unit.CLIENT: (Adjacency.REPLACE_ONE, "one client's data are replaced, and all other teachers keep theirs"),
    Unit.SAMPLE: (Adjacency.ADD_REMOVE, "each sample lies with one teacher, and no other sample moves with it"),
}


@dataclass(frozen=True, kw_only=True)
class PreparedTransfer:
    """A calibrated protection of a transfer together with the claims that its defense states; it may state none."""

    protection: TransferProtection
    claims: tuple[Claim, ...]

    @property
    def spending(self) -> dict[str, Callable[[int], float]]:
        """The epsilon after the first rounds, by ``claim_id``; empty, because all queries are answered in one round."""
        return {}


@dataclass(frozen=True, kw_only=True)
class TransferDefense(DefensePart, ABC):
    """The base class of defenses of a transfer by answers."""

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        """Calibrate the protection to the public plan of a transfer, and state its privacy claims.

        Raises:
            ValueError: if the plan violates an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} must define the method prepare(plan)")


@dataclass(frozen=True, kw_only=True)
class BudgetedTransfer(TransferDefense, ABC):
    """A base class of defenses with one budget for the answers to all queries together.

    Args:
        epsilon, delta: the budget; at delta 0 pure, where the mechanism allows it (``pure``).
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        # Delta 0 is a budget too where noise has a bounded loss, but ``false`` is not a number.
        if not self.pure or isinstance(self.delta, bool) or self.delta != 0:
            check_delta(self.delta)

    def label_claims(
        self,
        *,
        mechanism: str,
        parameters: Mapping[str, Value],
        accountant: str,
        source: str,
        curve: Curve | None = None,
    ) -> tuple[Claim, ...]:
        """Return the claims that all released labels together satisfy the budget, against the student.

        One is about a whole client, one about one sample: either changes the votes of one teacher, in any way.
        """
        return tuple(
            Claim(
                epsilon=self.epsilon,
                delta=self.delta,
                unit=unit,
                adjacency=adjacency,
                observer=ANSWERS,
                rounds=1,
                dp_model="central",
                mechanism=mechanism,
                parameters=parameters,
                accountant=accountant,
                sampling=words,
                trust=TRUSTED,
                source=source,
                curve=curve,
            )
            for unit, (adjacency, words) in _UNITS.items()
        )

    def answer_claim(
        self,
        *,
        mechanism: str,
        parameters: Mapping[str, Value],
        source: str,
        accountant: str | None = None,
        curve: Curve | None = None,
    ) -> Claim:
        """Return the local DP claim that all answers of one teacher together satisfy the budget, for any two teachers.

        The adversary is the server, which observes every teacher's answers.
        """
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            rounds=1,
            dp_model="local",
            mechanism=mechanism,
            parameters=parameters,
            accountant=accountant or (EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION),
            sampling="none assumed",
            trust="nobody",
            source=source,
            curve=curve,
        )
