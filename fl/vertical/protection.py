"""The hooks through which a defense changes the messages of a vertical federation; by default they change nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..hooks import Hooks
from ..wrong_return import wrong_return
from .plan import VerticalPlan


@dataclass(frozen=True, kw_only=True)
class VerticalContext:
    """The facts of one step that a defense's hooks may use.

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
    """The base class of what a defense runs in a vertical federation; a defense overrides the hooks that it uses.

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
        """Turn a passive party's columns of all people, ``(R, n, width)``, into those that it computes everything from.

        It is called once before the training, and once for new people whose classes are predicted.
        """
        return values

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn all people's labels, as ``one_hot (R, n, classes)``, into what the active party trains on.

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
        """Turn the gradients of the people's losses by their logits, ``(R, b, classes)``, into those from which the
        active party computes everything else: its own update, and the gradients that it sends.

        Without this hook they are the predicted probabilities minus the targets.
        """
        return values

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn the gradients of the people's losses by a passive party's embeddings, ``(R, b, embedding)``, into what
        the active party sends to that party.
        """
        return values

    def bottom_weights(self, norms: Tensor, party: int, context: VerticalContext) -> Tensor | None:
        """Return the weight of each person's gradient in the update of a passive party's bottom model, ``(R, b)``, from
        these gradients' ``norms (R, b)``; None, the default, weighs all equally.
        """
        return None

    def bottom_sum(self, total: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        """Turn the weighted sum of the batch's gradients by a passive party's bottom model, ``(R, d)``, into the sum by
        which it is updated.
        """
        return total

    def evaluated(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        """Turn a passive party's embeddings of new people ``(R, m, embedding)`` into what it sends for a prediction;
        unchanged by default.
        """
        return values


def check_returned(hook: str, found: object, like: Tensor) -> Tensor:
    """Return what a hook returned, or raise ValueError unless it is a tensor of the shape and type of ``like``.

    Torch would broadcast one row to all replicas, which would then share their noise.
    """
    if isinstance(found, Tensor) and found.shape == like.shape and found.dtype == like.dtype:
        return found
    raise wrong_return(hook, f"a torch.Tensor of {like.dtype} and shape {tuple(like.shape)}", found)


Hook = Callable[..., Tensor]
