"""These broken buckets of columns each get the whole epsilon of a person.

The real bug: the budget is taken for that of a person, and the randomiser is applied column by column.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.columns.columns_randomised_response import ColumnsRandomisedResponse
from ...vertical.defense import VerticalPrepared
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlColumnsInFull(VerticalControl, ColumnsRandomisedResponse):
    """A deliberately broken defense (control) that states the claim of randomised columns, which an audit must refute:
    the epsilons of all numbers of a person add up. With one column it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"epsilons": (self.each_of(1),) * plan.network.passive}
