"""Run vertical federated learning without any defense, and state no privacy claim."""

from ....fl.vertical.protection import VerticalPlan, VerticalProtection
from ..defense import VerticalDefense, VerticalPrepared


class Unprotected(VerticalDefense):
    """A defense that changes nothing: embeddings and gradients are sent as they are. The defense states no privacy
    claim.
    """

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        return VerticalPrepared(protection=VerticalProtection(), claims=())
