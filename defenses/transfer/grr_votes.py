"""Every teacher randomises its own votes by generalised randomised response (local DP; Kairouz et al. 2016)."""

from dataclasses import dataclass

from ...fl.transfer.task import TransferPlan
from ..accounting.pure import each_of
from ..defense import DeltaOrZero
from ..randomisers.categories.grr import GRR
from .defense import BudgetedTransfer, PreparedTransfer, RandomVotes


@dataclass(frozen=True, kw_only=True)
class GRRVotes(BudgetedTransfer):
    """A defense that needs no trusted aggregator: a teacher sends its vote for each query, or a random other label.

    All answers of a teacher share the budget: at delta 0 in equal parts, at another delta each spends what exact
    composition allows. The label with most answers is released, which is the one of the largest estimated count.

    Args:
        epsilon, delta: budget of one teacher's answers to all queries; delta may be 0.
    """

    delta: DeltaOrZero = 0.0
    pure = True

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        each = each_of(plan.queries, epsilon=self.epsilon, delta=self.delta)
        claim = self.answer_claim(
            mechanism="generalised randomised response on each vote",
            parameters={"queries": plan.queries, "classes": plan.classes, "answer_epsilon": each},
            source=f"{GRR.source}; federated distillation: Qi et al. 2023",
        )
        return PreparedTransfer(
            protection=RandomVotes(randomiser=GRR(epsilon=each, domain=plan.classes)), claims=(claim,)
        )
