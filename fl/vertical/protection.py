"""The hooks (methods that the engine calls) through which a defense changes the messages of a vertical federation; by
default a hook changes nothing.

The plan holds the public facts, and a law the public randomness in the messages.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from ..fields import check_count, check_positive
from ..hooks import Hooks
from .network import VerticalNetwork


class Noised(StrEnum):
    """The choice of where a defense's randomness enters: a message, or a number from which messages are computed."""

    TARGETS = "targets"
    RESIDUALS = "residuals"
    GRADIENTS = "gradients"
    EMBEDDINGS = "embeddings"
    COLUMNS = "columns"


class Noise(StrEnum):
    """A distribution of additive noise, independent for each number."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalLaw:
    """The distribution of what is released about one person in a vertical federation.

    Args:
        noised: what the randomness is added to.
        channel: (classes, classes), the probability that a label (row) is released as another (column); each row sums
            to 1. For embeddings (2, 2): that the sign of each number, minus or plus, is released as another. For
            columns: that a number's bucket is released as another. None for additive noise.
        noise: the kind of additive noise; None for a channel.
        scale: of the additive noise: the standard deviation of Gaussian, the scale of Laplace noise.
        clip: the norm (L2 for Gaussian, L1 for Laplace noise) to which the message is clipped before; None: it is not.
        releases: independent releases about one person over the whole training.

    Raises:
        ValueError: unless exactly one of channel and noise is given, or for a channel that is none, a scale <= 0, or no
            release.
    """

    noised: Noised
    releases: int
    channel: Tensor | None = None
    noise: Noise | None = None
    scale: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if (self.channel is None) == (self.noise is None):
            raise ValueError("a law has either a channel (of labels) or additive noise, got both or neither")
        check_count("releases", self.releases)
        if self.noise is not None:
            check_positive("scale of the noise", self.scale)
        if self.channel is not None:
            rows = self.channel.sum(1)
            if self.channel.ndim != 2 or (self.channel < 0).any() or not torch.allclose(rows, torch.ones_like(rows)):
                raise ValueError("channel must be a square table of probabilities, each row with sum 1")


@dataclass(frozen=True, kw_only=True)
class VerticalPlan:
    """The facts about a vertical federation that are public before the training starts.

    An epoch goes once over all people, in an order that all parties know: they align their rows by it.

    Args:
        people: number of people, whose rows the parties have aligned.
        network: the architecture of all parties' models.
        epochs: passes over all people.
        batch: people in one step.
        learning_rate: of plain gradient descent, of all models.
        frozen: whether the passive parties' bottom models keep their public initial parameters.

    Raises:
        ValueError: for counts below 1, a batch larger than the number of people, or a learning rate that is no number
            > 0.
    """

    people: int
    network: VerticalNetwork
    epochs: int
    batch: int
    learning_rate: float
    frozen: bool = False

    def __post_init__(self) -> None:
        for name in ("people", "epochs", "batch"):
            check_count(name, getattr(self, name))
        if self.batch > self.people:
            raise ValueError(f"batch must be at most people = {self.people}, got {self.batch}")
        check_positive("learning_rate", self.learning_rate)

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of one pass over all people; the last batch may be smaller."""
        return math.ceil(self.people / self.batch)

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class VerticalContext:
    """The facts of one training step that the hooks of a defense (the methods that the engine calls) may use.

    Args:
        plan: the public facts of the federation.
        epoch: number of the pass over all people, from 0.
        step: number of the step, from 0 over the whole training; of the first step in an epoch for ``targets``.
        replicas: number of independent runs.
        people: (b,), the people of the step's batch.
        targets: (R, b, classes), what the active party trains on, for its own hooks; None for hooks of other parties.
    """

    plan: VerticalPlan
    epoch: int
    step: int
    replicas: int
    people: Tensor
    targets: Tensor | None = None


class VerticalProtection(Hooks):
    """The base class of defenses of a vertical federation; a defense overrides the hooks (methods that the engine
    calls) that it needs.

    Replicas (independent runs) are the first dimension of every tensor, and a hook draws all its randomness from the
    generator that it receives. A hook returns a tensor of the type float32, as its values have, and of their shape.
    Numbers that NumPy draws are of the type float64, and need ``.float()``.
    """

    redraws: bool = False
    """Whether ``targets`` is called in every epoch; by default its first result is used in all epochs."""
    sends_once: bool = False
    """Whether the passive parties send each person's embedding in the first epoch only, and the active party uses it in
    all epochs. Their bottom models must be frozen.
    """

    def columns(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        """Turn a passive party's columns of all people, ``(R, n, width)``, into the columns from which it computes
        everything.

        It is called once before the training, and once for new people whose classes are predicted.
        """
        return values

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn all people's labels, as ``one_hot (R, n, classes)``, into the targets on which the active party trains.

        The result has the same shape; each row may be any distribution over the classes, or a denoised estimate of one.
        """
        return one_hot

    def embeddings(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn a passive party's embeddings of the batch, ``(R, b, embedding)``, into what it sends to the active
        party.

        The engine differentiates the hook, to pass the gradients that come back on to the bottom model. It uses them as
        they are where the result does not depend on ``values`` by differentiable operations.
        """
        return values

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn the gradients of the people's losses with respect to their logits, ``(R, b, classes)``, into the
        gradients that the active party uses. From these it computes everything else: its own update, and the gradients
        that it sends.

        Without this hook they are the predicted probabilities minus the targets.
        """
        return values

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn the gradients of the people's losses with respect to a passive party's embeddings, ``(R, b,
        embedding)``, into what the active party sends to that party.
        """
        return values

    def bottom_weights(self, norms: Tensor, party: int, context: VerticalContext) -> Tensor | None:
        """Return the weight of each person's gradient in the update of a passive party's bottom model, ``(R, b)``, from
        these gradients' ``norms (R, b)``; None, the default, weighs all equally.
        """
        return None

    def bottom_sum(self, total: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn the sum by which a passive party's bottom model would be updated, ``(R, d)``, into the sum by which it
        is updated. The given sum is the weighted sum of the batch's gradients with respect to this model.
        """
        return total

    def evaluated(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        """Turn a passive party's embeddings of new people ``(R, m, embedding)`` into what it sends for a prediction;
        unchanged by default.
        """
        return values
