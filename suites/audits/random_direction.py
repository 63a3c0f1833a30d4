"""Random-direction canary: missing noise shows on any weight, but no law scores a direction that others share."""

from .canary_replicas import CanaryMethod


class RandomDirection(CanaryMethod):
    """Plants a row along a random direction of all weights (Andrew et al. 2023), scored by its projection."""

    precedence = 40
    designs = ("random",)


METHOD = RandomDirection()
