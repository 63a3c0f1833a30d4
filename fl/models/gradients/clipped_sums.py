"""Norms of sample gradients, and sums of clipped sample gradients, without holding the gradient of every sample.

After Goodfellow 2015 (norms of linear layers), Li et al. 2022 (ghost clipping) and Bu et al. 2022 and 2023 (the cheaper
of norms from products and from rows; sums from the same products, without a second backward pass). Memory is bounded by
blocks of samples. Weights may differ by parameter, so that gradients can be clipped layer by layer.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from .sample_blocks import Block, SampleLoss, sample_blocks

Weigh = Callable[[Tensor], Tensor]
"""Gives each sample's weight ``(m,)``, or ``(m, parameters)``, from its parameters' norms ``(m, parameters)``."""


def sample_norms(target: SampleLoss, layers: Mapping[str, Tensor], *cases: Tensor) -> Tensor:
    """Return the norm of each sample's gradient of each parameter, ``(n, parameters)``.

    The norm of a sample's whole gradient is the norm of its row. ``layers``: parameters by name, in the order of the
    result; ``cases``: tensors ``(n, ...)`` as the loss takes them.
    """
    first = next(iter(layers.values()))
    found = [_norms(block, list(layers)).to(first) for block in sample_blocks(target, layers, *cases)]
    return torch.cat(found) if found else first.new_zeros(0, len(layers))


def clipped_sum_of(target: SampleLoss, layers: Mapping[str, Tensor], weigh: Weigh, *cases: Tensor) -> dict[str, Tensor]:
    """Return the sum over samples of weight times gradient, by parameter name.

    ``weigh`` gives the weights of a block of samples from their norms, for example ``clip_norm / norm`` where a norm is
    too long. A sample whose gradient is not finite contributes nothing.
    """
    names = list(layers)
    total = {name: torch.zeros_like(value, requires_grad=False) for name, value in layers.items()}
    for block in sample_blocks(target, layers, *cases):
        norms = _norms(block, names).to(next(iter(total.values())))
        finite = norms.isfinite().all(1)
        if not finite.all():
            block, norms = {name: part.only(finite) for name, part in block.items()}, norms[finite]
        weights = weigh(norms)
        weights = weights.unsqueeze(1).expand_as(norms) if weights.ndim == 1 else weights
        for column, name in enumerate(names):
            if name in block and len(norms):
                total[name] += block[name].weighted_sum(weights[:, column]).view_as(total[name])
    return total


def _norms(block: Block, names: Sequence[str]) -> Tensor:
    """The norms of a block's samples ``(m, parameters)``; zero for parameters that the loss does not use."""
    squares = {name: part.squared_norms() for name, part in block.items()}
    one = next(iter(squares.values()))
    return torch.stack([squares.get(name, torch.zeros_like(one)) for name in names], dim=1).sqrt()
