"""Every teacher flips each bit of its one-hot votes at random (local DP; Wang et al. 2017, as in Qi et al. 2023)."""

from dataclasses import dataclass

from ...fl.transfer.task import TransferPlan
from ..accounting.pure import each_of
from ..defense import DeltaOrZero
from ..randomisers.categories.unary import ENCODINGS, Unary
from .defense import BudgetedTransfer, PreparedTransfer, RandomVotes


@dataclass(frozen=True, kw_only=True)
class UnaryVotes(BudgetedTransfer):
    """A defense that needs no trusted aggregator: a teacher sends each vote as bits, each of which may be flipped.

    Two votes differ in two bits, so that an answer costs what both bits cost together: with ``symmetric`` flips of
    probability 1 / (1 + e^x) that is 2 x, not x.

    Args:
        epsilon, delta: budget of one teacher's answers to all queries; delta may be 0.
        encoding: "symmetric" (randomised response on every bit) or "optimised" (less noise at the same epsilon).
    """

    delta: DeltaOrZero = 0.0
    encoding: str = "symmetric"
    pure = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}")

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        each = each_of(plan.queries, epsilon=self.epsilon, delta=self.delta)
        randomiser = Unary(epsilon=each, domain=plan.classes, encoding=self.encoding)
        claim = self.answer_claim(
            mechanism="randomised response on each bit of each one-hot vote",
            parameters={
                "queries": plan.queries,
                "classes": plan.classes,
                "answer_epsilon": each,
                "encoding": self.encoding,
            },
            source=f"{Unary.source}; federated distillation: Qi et al. 2023",
        )
        return PreparedTransfer(protection=RandomVotes(randomiser=randomiser), claims=(claim,))
