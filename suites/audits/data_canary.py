"""Data canary: a mislabelled or a crafted sample that goes through the model, scored by its projection."""

from .canary_replicas import CanaryMethod


class DataCanary(CanaryMethod):
    """Plants a sample that goes through the model and the per-sample gradient; a split chooses its threshold."""

    precedence = 50
    designs = ("mislabelled", "crafted")


METHOD = DataCanary()
