"""Run federated learning without any defense, and state no privacy claim."""

from ...fl.plan import Plan
from ...fl.protection import Protection
from ..defense import Defense, Prepared


class Undefended(Defense):
    """A defense that changes nothing: clients send their updates and the server averages them. The defense states no
    privacy claim.
    """

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=Protection(), claims=())
