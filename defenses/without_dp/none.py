"""Run federated learning without any defense, and state no privacy claim."""

from dataclasses import dataclass

from ...fl.plan import Plan
from ...fl.protection import Protection
from ..defense import Defense, Prepared


@dataclass(frozen=True, kw_only=True)
class Undefended(Defense):
    """A defense that changes nothing: clients send their updates and the server averages them. It states no claim."""

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=Protection(), claims=())
