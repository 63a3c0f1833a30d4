"""Trains many small models at once, each on its own samples: the teachers of a transfer, or students of many runs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..algorithms.algorithm import FedAvg
from ..fields import check_count
from ..models.network import Network

_IMAGE_BYTES, _MODEL_BYTES = 2**26, 2**23
"""Largest size of the images of one step and of the parameters, over all models that are trained together. With more
parameters a step takes twice as long per model, because of page faults.
"""


@dataclass(frozen=True, kw_only=True)
class TrainingRule:
    """How one model is trained.

    Args:
        steps: number of training steps.
        learning_rate, optimizer: of these steps ("sgd" or "adam", as in ``FedAvg``).
        lot: number of samples in each step, drawn without replacement within the step; None: all samples.
    """

    steps: int
    learning_rate: float
    optimizer: Literal["sgd", "adam"] = "adam"
    lot: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        if self.lot is not None:
            check_count("lot", self.lot, alternative=" or None")
        self.algorithm()

    def algorithm(self) -> FedAvg:
        """Return the algorithm of the steps, which is that of one client that trains alone."""
        return FedAvg(learning_rate=self.learning_rate, local_steps=self.steps, optimizer=self.optimizer)

    def draw(self, rng: np.random.Generator, models: int, samples: int) -> Tensor:
        """Draw the lots of ``models`` models that hold ``samples`` samples each: indices ``(models, steps, lot)``.

        Where all samples are used there is one lot, ``(models, 1, samples)``, and nothing is drawn.
        """
        if self.lot is None or self.lot >= samples:
            return torch.arange(samples).expand(models, 1, samples)
        # Column by column of a random order: without replacement, and one draw for all steps.
        order = rng.random((models, self.steps, samples)).argsort(axis=-1)
        return torch.from_numpy(order[..., : self.lot].copy())


@dataclass(frozen=True, kw_only=True, eq=False)
class Lessons:
    """The samples of B models that are trained together.

    Args:
        images: (n, c, h, w), the pool that all models share.
        places: (B, m), the index of each model's samples in the pool.
        labels: (B, m), the labels that each model is trained on.
        present: (B, m) booleans; a sample that is not present enters no gradient and no mean over a lot.
        lots: (B, steps, lot), the samples of each step as indices into the m columns; one lot may serve all steps.
    """

    images: Tensor
    places: Tensor
    labels: Tensor
    present: Tensor
    lots: Tensor

    def step(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images, the labels and the weights of one step's lots; a model without samples has weights 0."""
        chosen = self.lots[:, min(number, self.lots.shape[1] - 1)]
        present = self.present.gather(1, chosen)
        weights = present / present.sum(1, keepdim=True).clamp_min(1)
        return self.images[self.places.gather(1, chosen)], self.labels.gather(1, chosen), weights

    def rows(self, chosen: slice) -> "Lessons":
        """Return the samples of some of the models."""
        parts = {name: getattr(self, name)[chosen] for name in ("places", "labels", "present", "lots")}
        return Lessons(images=self.images, **parts)


def trained(network: Network, start: Tensor, lessons: Lessons, rule: TrainingRule) -> Tensor:
    """Train B models from ``start (B, d)`` and return them, ``(B, d)``. A model without samples stays where it is.

    Raises:
        ValueError: for a network with dropout or batch norm, or one that does not classify.
    """
    check_network(network)
    pixels = lessons.images[0].numel() * lessons.lots.shape[-1]
    size = max(1, min(_IMAGE_BYTES // (4 * pixels), _MODEL_BYTES // (4 * start.shape[1])))
    parts = [slice(first, first + size) for first in range(0, len(start), size)]
    return torch.cat([_trained(network, start[part], lessons.rows(part), rule) for part in parts])


def check_network(network: Network) -> None:
    """Raise ValueError unless the model classifies samples one by one, without dropout."""
    if not network.objective.classifies:
        raise ValueError(f"teachers must classify samples, and model {network.model} solves {network.objective.name}")
    if network.dropout_rate or network.mixes:
        raise ValueError(f"teachers and students must have neither dropout nor batch norm, got model {network.model}")


def _trained(network: Network, start: Tensor, lessons: Lessons, rule: TrainingRule) -> Tensor:
    algorithm, model = rule.algorithm(), start
    state, learns = algorithm.start(model), lessons.present.any(1, keepdim=True)
    # One lot for all steps is gathered once.
    fixed = lessons.step(0) if lessons.lots.shape[1] == 1 else None
    for number in range(rule.steps):
        images, labels, weights = fixed or lessons.step(number)
        model, state = algorithm.step(model, network.gradient(model, images, labels, weights), state)
    return torch.where(learns, model, start)
