"""Add a mislabelled or crafted sample (canary) to a client's data, and score runs by projections onto the canary."""

from ...checks.canaries import CANARIES
from .canary_replicas import CanaryMethod


class DataCanaryMethod(CanaryMethod):
    """An audit method that adds a canary sample to the training data; one half of the runs chooses the score threshold,
    the other half tests it.
    """

    precedence = 50
    canaries = ("mislabelled", "crafted")

    def audits_with(self, canary: str) -> bool:
        # What a canary from outside is made of is not known before it is built: its scores need no assumption on it.
        return canary in self.canaries or canary not in CANARIES


METHOD = DataCanaryMethod()
