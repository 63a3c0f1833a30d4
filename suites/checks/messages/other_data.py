"""The data under which noise is tested again: short and very long gradients of inputs at the ends of their range,
one class, lots without a sample.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ....fl.replay import DrawNone, FixedGradients, FrozenFederation

_SHORT, _LONG = 1e-5, 1e3
"""Factors of the gradients."""


def other_data(federation: FrozenFederation) -> Iterator[tuple[str, FrozenFederation]]:
    """Yield federations like the given one on other data, with words for the data."""
    task, plan = federation.task, federation.plan
    network = task.network
    if isinstance(network, FixedGradients):
        ends = zip((_SHORT, _LONG), _ends(task.images), ("short gradients", "very long gradients"), strict=True)
        for (factor, images, words), inputs in zip(ends, ("smallest", "largest"), strict=True):
            changed = replace(network, steepness=network.steepness * factor).sharing(network)
            other = replace(task, network=changed, images=images)
            yield f"{words}, inputs of the {inputs} numbers", replace(federation, task=other)
    yield "one class", replace(federation, task=replace(task, labels=torch.zeros_like(task.labels)))
    # Only a rule that leaves samples out draws lots without any.
    if min(plan.lot.rate(size) for size in plan.sizes) < 1:
        yield "empty lots", replace(federation, plan=replace(plan, lot=DrawNone(plan.lot)))


def other_inputs(images: Tensor, places: Tensor) -> Tensor:
    """Return the inputs ``(n, ...)`` with those at ``places`` moved as far as the range of each of their numbers in all
    inputs allows.
    """
    low, high = (end[places] for end in _ends(images))
    moved, own = images.clone(), images[places]
    moved[places] = torch.where(own - low > high - own, low, high)
    return moved


def _ends(images: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of each number of the inputs, as inputs."""
    return images.amin(0, keepdim=True).expand_as(images), images.amax(0, keepdim=True).expand_as(images)
