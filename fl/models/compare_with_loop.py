"""Compares the sample gradients of a model, their norms and clipped sums with one backward pass per sample."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from .admission import batch_norms, prepared
from .gradients import SampleLoss, clipped_sum_of, sample_norms, sample_rows
from .layers import SeededModel

Losses = Callable[[Tensor, Tensor], Tensor]
"""The losses ``(n,)`` of a batch from its logits and labels."""


@dataclass(frozen=True, kw_only=True)
class LayerDifference:
    """How far one parameter's results are from those of a loop over samples, each relative to the loop's largest.

    Args:
        name: the parameter.
        gradients: largest norm of a difference of sample gradients, over the largest norm of a sample gradient.
        norms: largest difference of norms, over the largest norm.
        clipped_sum: norm of the difference of sums clipped by the whole gradient's norm, over the sum of their lengths.
        layer_clipped_sum: the same for sums in which each parameter is clipped by its own norm.
    """

    name: str
    gradients: float
    norms: float
    clipped_sum: float
    layer_clipped_sum: float

    @property
    def largest(self) -> float:
        """The largest of the four differences; about 1e-6 in single precision where nothing is wrong."""
        return max(self.gradients, self.norms, self.clipped_sum, self.layer_clipped_sum)


def compare_with_loop(
    model: nn.Module, batch: tuple[Tensor, Tensor], *, losses: Losses | None = None, seed: int = 0
) -> tuple[LayerDifference, ...]:
    """Compare every parameter's sample gradients, norms and clipped sums with one backward pass per sample.

    The clip norm is the median norm of the samples. The module is prepared for training in place (see ``admission``).
    Nothing is read or changed in PyTorch's global generator.

    Args:
        batch: images ``(n, ...)`` and labels ``(n,)``, at least two samples.
        losses: cross-entropy by default; without reduction over the samples.
        seed: of the masks of dropout, which both ways share.

    Raises:
        ValueError: for a model that ``admission.prepared`` refuses, or with a batch norm, which leaves no sample a
            gradient of its own.
    """
    images, labels = batch
    if len(images) < 2 or len(images) != len(labels):
        raise ValueError(f"batch must hold two samples or more, got {len(images)} images and {len(labels)} labels")
    module = prepared(type(model).__name__, model, images)
    if mixing := batch_norms(module):
        raise ValueError(
            f"{type(model).__name__} has batch norm, which mixes the samples of a batch, so that no sample has a "
            "gradient of its own; replace "
            + ", ".join(f"layer {name} by {replacement}" for name, replacement in mixing.items())
        )
    target = SampleLoss(module=module, loss=_loss_of_one(module, losses or _cross_entropies))
    layers = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
    drawn = module.draw(np.random.default_rng(seed), (len(images),)) if isinstance(module, SeededModel) else None
    cases = (images, labels) if drawn is None else (images, labels, drawn)
    return _differences(target, layers, _looped(target, layers, cases), cases)


def _differences(
    target: SampleLoss, layers: Mapping[str, Tensor], wanted: Mapping[str, Tensor], cases: tuple[Tensor, ...]
) -> tuple[LayerDifference, ...]:
    lengths = torch.stack([torch.linalg.vector_norm(rows, dim=1) for rows in wanted.values()], dim=1)
    bound = float(torch.linalg.vector_norm(lengths, dim=1).median()) or 1.0
    layer_bounds = lengths.median(0).values.clamp_min(1e-30)

    def flat(norms: Tensor) -> Tensor:
        weights: Tensor = bound / torch.linalg.vector_norm(norms, dim=1).clamp_min(bound)
        return weights

    def layered(norms: Tensor) -> Tensor:
        return layer_bounds / torch.maximum(norms, layer_bounds)

    norms, rows = sample_norms(target, layers, *cases), sample_rows(target, layers, *cases)
    sums = [clipped_sum_of(target, layers, weigh, *cases) for weigh in (flat, layered)]
    weights = [flat(lengths).unsqueeze(1).expand_as(lengths), layered(lengths)]
    found = list[LayerDifference]()
    for column, (name, loop) in enumerate(wanted.items()):
        own = lengths[:, column]
        summed = [
            _relative((total[name].flatten() - weight[:, column] @ loop).norm(), weight[:, column] @ own)
            for total, weight in zip(sums, weights, strict=True)
        ]
        found.append(
            LayerDifference(
                name=name,
                gradients=_relative((rows[name] - loop).norm(dim=1).max(), own.max()),
                norms=_relative((norms[:, column] - own).abs().max(), own.max()),
                clipped_sum=summed[0],
                layer_clipped_sum=summed[1],
            )
        )
    return tuple(found)


def _relative(difference: Tensor, size: Tensor) -> float:
    # A layer that the loss does not use has neither.
    return float(difference) if not size else float(difference / size)


def _cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits, labels, reduction="none")


def _loss_of_one(module: nn.Module, losses: Losses) -> Callable[..., Tensor]:
    def loss(layers: Mapping[str, Tensor], image: Tensor, label: Tensor, *dropout: Tensor) -> Tensor:
        given = (image.unsqueeze(0), *(part.unsqueeze(0) for part in dropout))
        return losses(functional_call(module, dict(layers), given), label.unsqueeze(0))[0]

    return loss


def _looped(target: SampleLoss, layers: Mapping[str, Tensor], cases: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The naive version: one backward pass per sample."""
    rows: dict[str, list[Tensor]] = {name: [] for name in layers}
    for case in zip(*cases, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in layers.items()}
        with torch.enable_grad():
            loss = target.loss(leaves, *case)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        for (name, leaf), row in zip(leaves.items(), found, strict=True):
            rows[name].append(torch.zeros_like(leaf).flatten() if row is None else row.flatten())
    return {name: torch.stack(parts) for name, parts in rows.items()}
