"""Data canary: adds a mislabelled or crafted sample to a client's data and scores runs by their projection on it."""

from .canary_replicas import CanaryMethod


class DataCanary(CanaryMethod):
    """An audit method that adds a canary sample to the training data; half of the runs choose the score threshold."""

    precedence = 50
    designs = ("mislabelled", "crafted")


METHOD = DataCanary()
