"""Attack that infers label counts by linear equations from recovered class embeddings (iLRG, Ma et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from ...audit.arrays import FloatArray, IntArray
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots, LastLayer, last_layer


def solved_counts(gradient: LastLayer, model: LastLayer, size: int) -> FloatArray:
    """Solve for the label counts of one upload, shape ``(classes,)``, by least squares, neither rounded nor clipped.

    ``size`` is the number of samples in the batch.

    Row k of the weight's gradient divided by entry k of the bias's gradient is a mean feature vector, dominated by
    samples of class k where the softmax is flat; its softmax P_k under the last layer approximates theirs. With b the
    bias's gradient, ``size * b_k = sum_j counts_j P_j[k] - counts_k``, and the counts sum to ``size``: classes + 1
    equations, solved by the pseudo-inverse.
    """
    bias = gradient.needed_bias("ilrg")[:, None]
    # Without a gradient there is no embedding: features of zero leave the model's bias alone.
    features = np.divide(gradient.weight, bias, out=np.zeros_like(gradient.weight), where=bias != 0)
    probabilities = softmax(features @ model.weight.T + model.needed_bias("ilrg"), axis=1)
    system = np.vstack([probabilities.T - np.eye(len(bias)), np.ones(len(bias))])
    return np.asarray(np.linalg.pinv(system) @ np.append(size * bias[:, 0], size), dtype=np.float64)


def rounded_counts(solved: FloatArray, size: int) -> IntArray:
    """Round each label count to a whole number between 0 and the batch size, as in the paper; the sum of the rounded
    counts may differ from the batch size.

    Where all round to zero, the largest becomes 1.
    """
    counts = np.rint(np.clip(solved, 0, size)).astype(np.int64)
    # A lot is never empty.
    if not counts.any():
        counts[solved.argmax()] = 1
    return np.asarray(counts, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ILRG(LabelAttack):
    """An attack that infers the label counts of each upload of one round from the gradient, the model and the batch's
    public size.

    Softmax values of the recovered class embeddings enter the equations.

    Exact on barely trained models while lots are not much larger than the number of classes: then each embedding comes
    almost only from its class. Clipping scales the gradient, which this attack does not expect.
    """

    linear: ClassVar[bool] = True

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        model, bias = last_layer(lots.model, knowledge.network.layout), lots.last.needed_bias("ilrg")
        uploads = (LastLayer(weight=w, bias=b) for w, b in zip(lots.last.weight, bias, strict=True))
        pairs = zip(uploads, lots.sizes.tolist(), strict=True)
        return np.stack([rounded_counts(solved_counts(upload, model, size), size) for upload, size in pairs])
