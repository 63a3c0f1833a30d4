"""Finds models that return the probabilities of classes in place of logits.

The cross-entropy of training applies a softmax itself. Behind a softmax of the model it learns slowly and leaks less
than the same model with logits, so that an audit would understate what the model leaks.
"""

from math import prod

import torch

from .network import Network

WORDS = (
    "each row of its outputs lies in [0, 1] and sums to 1, as after a softmax: the loss of training applies a softmax "
    "itself, so return the logits"
)
_CLOSE = 1e-4


def returns_probabilities(network: Network) -> bool:
    """Return whether a classifier, with its own initial weights, turns images into rows in [0, 1] that sum to 1."""
    if not network.objective.classifies:
        return False
    images = torch.linspace(0, 1, 2 * prod(network.shape)).view(2, *network.shape)
    with torch.no_grad():
        outputs = network.module(images)
    inside = bool(((outputs >= 0) & (outputs <= 1)).all())
    return inside and bool(((outputs.sum(1) - 1).abs() <= _CLOSE).all())
