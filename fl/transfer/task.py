"""The plan and the task of a transfer, and the training of many small models at once, each on its own samples.

The plan holds the public facts, known to teachers, aggregator, student and adversaries alike. The task is one of which
some public samples are set aside, without their labels, as the queries.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..fields import check_count
from ..layout import Layout
from ..models.network import Network
from ..plan import Plan
from ..sampling import Full
from ..streams import Streams
from ..task import Task, TrainingRule

_IMAGE_BYTES, _MODEL_BYTES = 2**26, 2**23
"""Largest size of the images of one step and of the parameters, over all models that are trained together. With more
parameters a step takes twice as long per model, because of page faults.
"""


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
        """Return the training samples of some of the models."""
        parts = {name: getattr(self, name)[chosen] for name in ("places", "labels", "present", "lots")}
        return Lessons(images=self.images, **parts)


def trained(network: Network, start: Tensor, lessons: Lessons, rule: TrainingRule) -> Tensor:
    """Train B models from ``start (B, d)`` and return them, ``(B, d)``. A model without samples is not changed.

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


@dataclass(frozen=True, kw_only=True)
class TransferPlan:
    """The facts about a transfer that are public before it starts; defenses calibrate their noise to them.

    Args:
        sizes: samples of each teacher; every client is one teacher.
        queries: number of public samples that all teachers answer.
        classes: number of labels that a teacher can answer.
        teacher, student: how each of them is trained.
        layout: the layers of the model, which teachers and student share.
    """

    sizes: tuple[int, ...]
    queries: int
    classes: int
    teacher: TrainingRule
    student: TrainingRule
    layout: Layout

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must list at least one teacher, each with at least one sample, got {self.sizes}")
        check_count("queries", self.queries)
        check_count("classes", self.classes, least=2)

    @property
    def teachers(self) -> int:
        """The number of teachers."""
        return len(self.sizes)

    @property
    def rounds(self) -> int:
        """The number of rounds, which is 1 because all queries are answered together."""
        return 1

    def as_training(self) -> Plan:
        """Return the transfer as the plan of one round in which all clients train, for attacks on the final model."""
        return Plan(
            sizes=self.sizes,
            rounds=self.rounds,
            cohort=Full(),
            lot=Full(),
            algorithm=self.teacher.algorithm(),
            layout=self.layout,
        )


Source = Literal["test", "outsiders"]
ABSTAINED = -1
"""The released label of a query that the aggregator does not answer."""


@dataclass(frozen=True, kw_only=True)
class TransferTask:
    """The data of one transfer: the teachers' own samples, and the public samples that they are asked about.

    Args:
        task: the clients are the teachers; its test images measure the student and are no queries.
        public_images: (queries, c, h, w), what the teachers answer and the student trains on.
        public_labels: (queries,), their true labels. They measure the answers; neither student nor attack gets them.
    """

    task: Task
    public_images: Tensor
    public_labels: Tensor

    def __post_init__(self) -> None:
        check_network(self.task.network)

    def plan(self, *, teacher: TrainingRule, student: TrainingRule) -> TransferPlan:
        """Return the plan of a transfer of this task."""
        network = self.task.network
        return TransferPlan(
            sizes=self.task.sizes,
            queries=len(self.public_labels),
            classes=network.classes,
            teacher=teacher,
            student=student,
            layout=network.layout,
        )

    def answered(self, labels: Tensor) -> Tensor:
        """Return the share of queries that have a released label: ``labels (R, queries)`` become ``(R,)``."""
        return (labels != ABSTAINED).double().mean(1)

    def accuracy(self, labels: Tensor) -> Tensor:
        """Return the share of the released labels that are true, ``(R,)``; NaN in a run that released none."""
        right = (labels == self.public_labels).sum(1).double()
        return right / (labels != ABSTAINED).sum(1)


def transfer_task(task: Task, *, queries: int, streams: Streams, source: Source = "test") -> TransferTask:
    """Set ``queries`` samples of a task aside as the public data of a transfer; the stream ``public`` chooses them.

    Args:
        source: "test": some of the test images, and the others measure the student. "outsiders": some of the samples
            that no client holds, and fewer non-members are left for membership attacks.

    Raises:
        ValueError: if no image would be left of the source, or the model is no classifier (see ``check_network``).
    """
    if source not in ("test", "outsiders"):
        raise ValueError(f'source must be "test" or "outsiders", got {source!r}')
    name = "test" if source == "test" else "outsider"
    images, labels = getattr(task, f"{name}_images"), getattr(task, f"{name}_labels")
    if not 1 <= queries < len(labels):
        raise ValueError(f"queries must be in 1..{len(labels) - 1}, so that {source} images are left, got {queries}")
    order = torch.from_numpy(streams.generator("public").permutation(len(labels)))
    # Sorted: the order of the queries carries no information.
    asked, left = order[:queries].sort().values, order[queries:].sort().values
    rest = {f"{name}_images": images[left], f"{name}_labels": labels[left]}
    return TransferTask(task=replace(task, **rest), public_images=images[asked], public_labels=labels[asked])
