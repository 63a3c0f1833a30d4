"""Attack that infers label counts after several local steps, from softmax averages (Geng et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...fl.algorithms import FedSGD
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots, class_means, whole_counts

# Weight of the equation that the counts sum to the lot's size: it is exact, the others are estimates.
_EXACT = 100.0


def balanced_counts(bias: FloatArray, probabilities: FloatArray, size: int) -> FloatArray:
    """Solve for the label counts of one upload, non-negative and of shape ``(classes,)``, by non-negative least
    squares.

    ``bias``: (classes,), the mean gradient of the last bias; ``probabilities``: (classes, classes), the mean softmax
    of class j's samples in row j. ``size * bias_k = sum_j counts_j probabilities_jk - counts_k``.
    """
    system = np.vstack([probabilities.T - np.eye(len(bias)), _EXACT * np.ones(len(bias))])
    return np.asarray(nnls(system, np.append(size * bias, _EXACT * size))[0], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class BiasCorrected(LabelAttack):
    """An attack that infers how often each label occurs behind each upload of one round, after one local step or many.

    The steps' mean bias gradient is mean softmax minus label shares. The softmax averages of each class are measured on
    public images, at the broadcast model and at the client's final model (broadcast plus update). They are weighted as
    if the steps led straight from one to the other: the mean of T steps starts (T - 1) / 2T of the way. Clipping or
    noise of the upload is not taken into account.
    """

    linear: ClassVar[bool] = True

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        bias, before = lots.last.needed_bias("bias_corrected"), _softmax_means(lots.model, knowledge)
        shares = []
        for row, size in enumerate(lots.sizes.tolist()):
            met = before
            # FedSGD takes one step, so no gradient was computed at the client's final model.
            if not isinstance(knowledge.plan.algorithm, FedSGD):
                met = _on_the_way(
                    before, _softmax_means(_end(lots.model, lots.gradients[row], knowledge), knowledge), knowledge
                )
            shares.append(balanced_counts(bias[row], met, size))
        return whole_counts(np.stack(shares), lots.sizes)


def _end(model: Tensor, gradient: Tensor, knowledge: Knowledge) -> Tensor:
    """The client's own final model: ``local_steps`` steps along the mean gradient."""
    algorithm = knowledge.plan.algorithm
    return model + (algorithm.linear_scale or 0.0) * algorithm.local_steps * gradient


def _on_the_way(before: FloatArray, after: FloatArray, knowledge: Knowledge) -> FloatArray:
    steps = knowledge.plan.algorithm.local_steps
    share = (steps - 1) / (2 * steps)
    return (1 - share) * before + share * after


def _softmax_means(model: Tensor, knowledge: Knowledge) -> FloatArray:
    """Mean softmax of each class's public images, ``(classes, classes)``."""
    with torch.no_grad():
        probabilities = knowledge.network.logits_in_parts(model, knowledge.public_images).double().softmax(-1)
    means = class_means(probabilities, knowledge.public_labels, knowledge.network.classes)
    return np.asarray(means.numpy(), dtype=np.float64)
