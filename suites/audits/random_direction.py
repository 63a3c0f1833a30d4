"""Random-direction canary: reveals missing noise on any weight, but has no exact score as data change it too."""

from .canary_replicas import CanaryMethod


class RandomDirection(CanaryMethod):
    """An audit method that adds a row along a random direction of all weights, scored by its projection (Andrew et
    al. 2023).
    """

    precedence = 40
    designs = ("random",)


METHOD = RandomDirection()
