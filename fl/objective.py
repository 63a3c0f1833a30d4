"""Defines what the outputs of a model predict, and the loss of a prediction. A prediction is a class, pixels, numbers,
several labels, or the next token at each place of a text.

The loss of a class is its cross-entropy, and that of a text the mean cross-entropy over its places. Of pixels and of
several labels it is the mean binary cross-entropy, and of numbers the mean squared error.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

CLASSIFICATION, SEGMENTATION, REGRESSION, MULTILABEL = "classification", "segmentation", "regression", "multilabel"
NEXT_TOKEN = "next_token"


class Objective(ABC):
    """The task of a model: the form of its labels, the loss of each sample, and the predictions from its outputs.

    Outputs are ``(n, classes)``, for a segmentation ``(n, h, w)``, and for a text of ``length`` tokens
    ``(n, length, classes)``.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    """The labels in words, for messages."""

    def output_shape(self, shape: tuple[int, int, int], classes: int) -> tuple[int, ...]:
        """Return the shape of a model's output for one sample of the given ``shape``."""
        return (classes,)

    @abstractmethod
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, ``(n,)``; differentiable in ``outputs``."""

    @abstractmethod
    def soft_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a lot for continuous ``labels`` as ``relaxed`` returns them; differentiable in
        both.
        """

    @abstractmethod
    def slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of each sample's loss with respect to its outputs, in the shape of ``outputs``."""

    @abstractmethod
    def found(self, outputs: Tensor) -> Tensor:
        """Return the predictions for these outputs, in the form of labels."""

    @abstractmethod
    def relaxed(self, points: Tensor) -> Tensor:
        """Convert unbounded numbers, one per output, to labels in continuous form, so that an attack can search over
        labels.
        """

    @abstractmethod
    def others(self, labels: Tensor, classes: int) -> Tensor:
        """Return, for each of the given labels, a label that differs from it."""

    @abstractmethod
    def drawn(self, rng: np.random.Generator, size: tuple[int, ...], classes: int) -> Tensor:
        """Return random labels as a tensor of ``size``, which lists the leading dimensions followed by the dimensions
        of one label.
        """

    @abstractmethod
    def check(self, name: str, labels: Tensor, images: Tensor, classes: int) -> None:
        """Raise ValueError, starting with ``name``, unless ``labels`` are the labels of ``images (n, c, h, w)``."""

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of the samples' losses."""
        return self.losses(outputs, labels).mean()

    @property
    def classifies(self) -> bool:
        """Whether each sample has one class as its label."""
        return self.name == CLASSIFICATION


class Classification(Objective):
    """The objective of classification, with one class per sample: ``labels (n,)`` int64."""

    name = CLASSIFICATION
    words = "one class per sample"

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels, reduction="none")

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels)

    def soft_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return -(labels * outputs.log_softmax(-1)).sum(-1).mean()

    def slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        # PyTorch's softmax over so few classes takes five times as long as its parts.
        powers = (outputs - outputs.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True) - one_hot(labels, outputs.shape[-1]).to(outputs.dtype)

    def found(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def relaxed(self, points: Tensor) -> Tensor:
        return points.softmax(-1)

    def others(self, labels: Tensor, classes: int) -> Tensor:
        return (labels + 1) % classes

    def drawn(self, rng: np.random.Generator, size: tuple[int, ...], classes: int) -> Tensor:
        return torch.from_numpy(rng.integers(classes, size=size))

    def check(self, name: str, labels: Tensor, images: Tensor, classes: int) -> None:
        if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
            raise ValueError(
                f"{name} must be int64 of shape ({len(images)},), got {tuple(labels.shape)} of {labels.dtype}"
            )
        if len(labels) and (labels.min() < 0 or labels.max() >= classes):
            raise ValueError(f"{name} must be in [0, {classes}), got {int(labels.min())} to {int(labels.max())}")


class Flags(Objective, ABC):
    """A base class of objectives with several yes-or-no labels per sample, as booleans."""

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        each = binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype), reduction="none")
        return each.mean(self._of_one)

    def soft_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(outputs, labels)

    def slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        count = np.prod([outputs.shape[axis] for axis in self._of_one])
        return (outputs.sigmoid() - labels.to(outputs.dtype)) / float(count)

    def found(self, outputs: Tensor) -> Tensor:
        return outputs > 0

    def relaxed(self, points: Tensor) -> Tensor:
        return points.sigmoid()

    def others(self, labels: Tensor, classes: int) -> Tensor:
        return ~labels

    def drawn(self, rng: np.random.Generator, size: tuple[int, ...], classes: int) -> Tensor:
        return torch.from_numpy(rng.integers(2, size=size)).bool()

    def check(self, name: str, labels: Tensor, images: Tensor, classes: int) -> None:
        wanted = (len(images), *self._label_shape(images, classes))
        if tuple(labels.shape) != wanted or labels.dtype != torch.bool:
            raise ValueError(f"{name} must be booleans of shape {wanted}, got {tuple(labels.shape)} of {labels.dtype}")

    _of_one: ClassVar[tuple[int, ...]]
    """The dimensions of one sample's labels, counted from the last."""

    @abstractmethod
    def _label_shape(self, images: Tensor, classes: int) -> tuple[int, ...]: ...


class Segmentation(Flags):
    """The objective of segmentation, with one boolean per pixel: ``labels (n, h, w)``, true for the pixels to find."""

    name = SEGMENTATION
    words = "one label per pixel"
    _of_one = (-2, -1)

    def output_shape(self, shape: tuple[int, int, int], classes: int) -> tuple[int, ...]:
        return shape[1:]

    def _label_shape(self, images: Tensor, classes: int) -> tuple[int, ...]:
        return tuple(images.shape[2:])


class Multilabel(Flags):
    """The objective with several labels per sample, each of which holds or not: ``labels (n, classes)`` booleans."""

    name = MULTILABEL
    words = "several labels per sample"
    _of_one = (-1,)

    def _label_shape(self, images: Tensor, classes: int) -> tuple[int, ...]:
        return (classes,)


class Regression(Objective):
    """The objective of regression, with one or several numbers per sample: ``labels (n, classes)`` float32."""

    name = REGRESSION
    words = "numbers as labels"

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs - labels).square().mean(-1)

    def soft_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.losses(outputs, labels).mean()

    def slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs - labels) * (2 / outputs.shape[-1])

    def found(self, outputs: Tensor) -> Tensor:
        return outputs

    def relaxed(self, points: Tensor) -> Tensor:
        return points

    def others(self, labels: Tensor, classes: int) -> Tensor:
        # As far as two classes are apart: labels have a deviation of about one.
        return labels + 1

    def drawn(self, rng: np.random.Generator, size: tuple[int, ...], classes: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(size, dtype=np.float32))

    def check(self, name: str, labels: Tensor, images: Tensor, classes: int) -> None:
        if tuple(labels.shape) != (len(images), classes) or labels.dtype != torch.float32:
            raise ValueError(
                f"{name} of a regression must be float32 of shape ({len(images)}, {classes}), got "
                f"{tuple(labels.shape)} of {labels.dtype}"
            )
        if not bool(labels.isfinite().all()):
            raise ValueError(f"{name} of a regression must be finite numbers, got NaN or infinity")


class NextToken(Classification):
    """The objective of predicting the next token at each position of a text: ``labels (n, length)`` int64, for inputs
    ``(n, 1, 1, length)``.

    Tokens are whole numbers in [0, classes): ``classes`` is the size of the vocabulary. Inputs hold them as float32,
    which is exact up to 2^24.
    """

    name = NEXT_TOKEN
    words = "the next token at each position of a text"

    def output_shape(self, shape: tuple[int, int, int], classes: int) -> tuple[int, ...]:
        return shape[2], classes

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        each = cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
        return each.view(labels.shape).mean(-1)

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.losses(outputs, labels).mean()

    def slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return super().slopes(outputs, labels) / outputs.shape[-2]

    def check(self, name: str, labels: Tensor, images: Tensor, classes: int) -> None:
        wanted = (len(images), images.shape[-1])
        if images.shape[1:3] != (1, 1) or tuple(labels.shape) != wanted or labels.dtype != torch.int64:
            raise ValueError(
                f"{name} of a text must be int64 of shape (n, length) for inputs of shape (n, 1, 1, length), got "
                f"{tuple(labels.shape)} of {labels.dtype} for {tuple(images.shape)}"
            )
        for what, tokens in ((name, labels), ("the inputs of a text", images)):
            if len(tokens) and not bool(((tokens >= 0) & (tokens < classes) & (tokens == tokens.round())).all()):
                raise ValueError(f"{what} must be whole numbers in [0, {classes}), the tokens of the vocabulary")


OBJECTIVES: Mapping[str, Objective] = {
    one.name: one for one in (Classification(), Segmentation(), Regression(), Multilabel(), NextToken())
}
SAMPLE_TASKS = (CLASSIFICATION, REGRESSION, MULTILABEL)
"""What the labels of images and of rows of a table can be."""
TASKS = (*SAMPLE_TASKS, NEXT_TOKEN)
"""What the labels of a data set can be. Segmentation is not among them: its targets stand next to class labels."""


def objective_of(task: str) -> Objective:
    """Return the objective of a data set's task; raise ValueError for a name that is not in ``TASKS``."""
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    return OBJECTIVES[task]
