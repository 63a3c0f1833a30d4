"""Add a canary along a random direction of all weights, which reveals missing noise on any weight."""

from .canary_replicas import CanaryMethod


class RandomDirection(CanaryMethod):
    """An audit method that adds a canary update along a random direction of all weights and scores runs by their
    projection on it (Andrew et al. 2023).
    """

    precedence = 40
    canaries = ("random",)


METHOD = RandomDirection()
