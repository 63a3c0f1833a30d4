"""A transfer task is a task of which some public samples are set aside, without their labels, as the queries."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..streams import Streams
from ..task import Task
from .plan import TransferPlan
from .training import TrainingRule, check_network

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
        if not len(self.public_labels) or self.public_labels.shape != self.public_images.shape[:1]:
            raise ValueError(
                "public_labels must have one label for each of at least one public image, got "
                f"{tuple(self.public_labels.shape)} for images {tuple(self.public_images.shape)}"
            )

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
        """Return the share of queries that have a released label: ``labels (R, queries)`` give ``(R,)``."""
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
