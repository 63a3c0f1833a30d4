"""The data under which noise is tested again: short and very long gradients of the shortest and the longest input,
one class, lots without a sample.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ...fl.replay import DrawNone, FixedGradients, FrozenFederation

_SHORT, _LONG = 1e-5, 1e3
"""Factors of the gradients."""


def other_data(federation: FrozenFederation) -> Iterator[tuple[str, FrozenFederation]]:
    """Yield federations like the given one on other data, with words for the data."""
    task, plan = federation.task, federation.plan
    network = task.network
    if isinstance(network, FixedGradients):
        ends = zip((_SHORT, _LONG), _ends(task.images), ("short gradients", "very long gradients"), strict=True)
        for (factor, images, words), inputs in zip(ends, ("shortest", "longest"), strict=True):
            changed = replace(network, steepness=network.steepness * factor).sharing(network)
            other = replace(task, network=changed, images=images)
            yield f"{words}, all inputs the {inputs} one", replace(federation, task=other)
    yield "one class", replace(federation, task=replace(task, labels=torch.zeros_like(task.labels)))
    # Only a rule that leaves samples out draws lots without any.
    if min(plan.lot.rate(size) for size in plan.sizes) < 1:
        yield "empty lots", replace(federation, plan=replace(plan, lot=DrawNone(plan.lot)))


def other_inputs(images: Tensor, places: Tensor) -> Tensor:
    """Return the inputs ``(n, ...)`` with those at ``places`` replaced by the ones of all that are farthest from them.

    Real inputs, because a domain may have bounds that its records keep and that are stated nowhere.
    """
    moved, flat = images.clone(), images.flatten(1)
    moved[places] = images[torch.cdist(flat[places], flat).argmax(1)]
    return moved


def _ends(images: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest and the longest input, each in the place of all."""
    lengths = images.flatten(1).norm(dim=1)
    short, long = (images[int(place)].expand_as(images) for place in (lengths.argmin(), lengths.argmax()))
    return short, long
