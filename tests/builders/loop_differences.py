"""How far sample gradients, their norms and their clipped sums are from those of one backward pass per sample."""

import numpy as np
import torch
from fedassay.fl.models.admission import prepared
from fedassay.fl.models.gradients import SampleLoss, clipped_sum_of, sample_rows
from fedassay.fl.models.layers import SeededModel
from torch.func import functional_call
from torch.nn.functional import cross_entropy


def differences(model, batch):
    """By parameter: the differences of rows, norms, and sums clipped as a whole and by layer, each relative to the
    largest number of the loop.
    """
    module = prepared("model", model, batch[0])
    drawn = [module.draw(np.random.default_rng(0), (len(batch[0]),))] if isinstance(module, SeededModel) else []
    cases = (*batch, *drawn)

    def loss(layers, image, label, *dropout):
        given = tuple(part.unsqueeze(0) for part in (image, *dropout))
        return cross_entropy(functional_call(module, dict(layers), given), label.unsqueeze(0))

    target = SampleLoss(module=module, loss=loss)
    layers = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
    loop = looped(loss, layers, cases)
    lengths = torch.stack([rows.norm(dim=1) for rows in loop.values()], dim=1)
    bound, bounds = lengths.norm(dim=1).median(), lengths.median(0).values.clamp_min(1e-30)
    clips = (
        lambda norms: bound / norms.norm(dim=1).clamp_min(bound),
        lambda norms: bounds / torch.maximum(norms, bounds),
    )
    norms, rows = norms_of(target, layers, *cases), sample_rows(target, layers, *cases)
    sums = [clipped_sum_of(target, layers, clip, *cases) for clip in clips]
    weights = [clips[0](lengths).unsqueeze(1).expand_as(lengths), clips[1](lengths)]
    return {
        name: [
            relative((rows[name] - own).norm(dim=1).max(), lengths[:, column].max()),
            relative((norms[:, column] - lengths[:, column]).abs().max(), lengths[:, column].max()),
            *(
                relative(
                    (total[name].flatten() - weight[:, column] @ own).norm(), weight[:, column] @ lengths[:, column]
                )
                for total, weight in zip(sums, weights, strict=True)
            ),
        ]
        for column, (name, own) in enumerate(loop.items())
    }


def largest(model, batch):
    """The largest of all differences; about 1e-6 in single precision where nothing is wrong."""
    return max(one for found in differences(model, batch).values() for one in found)


def norms_of(target, layers, *cases):
    """The norms that weights are computed from, ``(n, parameters)``."""
    seen = []
    clipped_sum_of(target, layers, lambda norms: seen.append(norms) or norms[:, 0], *cases)
    return torch.cat(seen)


def relative(difference, size):
    # A layer that the loss does not use has neither.
    return float(difference / size) if size else float(difference)


def looped(loss, layers, cases):
    """The naive version: one backward pass per sample."""
    rows = {name: [] for name in layers}
    for case in zip(*cases, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in layers.items()}
        found = torch.autograd.grad(
            loss(leaves, *case), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        for name, row in zip(layers, found, strict=True):
            rows[name].append(row.flatten())
    return {name: torch.stack(parts) for name, parts in rows.items()}
