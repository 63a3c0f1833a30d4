"""No defense: plain federated learning, which claims nothing."""

from dataclasses import dataclass

from ...fl.plan import Plan
from ...fl.protection import Protection
from ..defense import Defense, Prepared


@dataclass(frozen=True, kw_only=True)
class Undefended(Defense):
    """Every hook is the identity."""

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=Protection(), claims=())
