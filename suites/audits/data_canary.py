"""Add a mislabelled or crafted sample (canary) to a client's data, and score runs by projections onto the canary."""

from .canary_replicas import CanaryMethod


class DataCanary(CanaryMethod):
    """An audit method that adds a canary sample to the training data; one half of the runs chooses the score threshold,
    the other half tests it.
    """

    precedence = 50
    canaries = ("mislabelled", "crafted")


METHOD = DataCanary()
