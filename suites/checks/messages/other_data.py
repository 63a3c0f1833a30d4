"""The data under which noise is tested again: short and very long gradients, one class, lots without a sample."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from ....fl.replay import DrawNone, FixedGradients, FrozenFederation

_SHORT, _LONG = 1e-5, 1e3
"""Factors of the gradients."""


def other_data(federation: FrozenFederation) -> Iterator[tuple[str, FrozenFederation]]:
    """Yield federations like the given one on other data, with words for the data."""
    task, plan = federation.task, federation.plan
    network = task.network
    if isinstance(network, FixedGradients):
        for factor, words in ((_SHORT, "short gradients"), (_LONG, "very long gradients")):
            changed = replace(network, steepness=network.steepness * factor).sharing(network)
            yield words, replace(federation, task=replace(task, network=changed))
    yield "one class", replace(federation, task=replace(task, labels=torch.zeros_like(task.labels)))
    # Only a rule that leaves samples out draws lots without any.
    if min(plan.lot.rate(size) for size in plan.sizes) < 1:
        yield "empty lots", replace(federation, plan=replace(plan, lot=DrawNone(plan.lot)))
