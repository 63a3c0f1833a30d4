"""Shadow students: whole transfers whose teachers held known random halves of the samples, for membership attacks.

A student never sees a teacher's samples, and reveals them only by the released labels. Attacks on a final model
(``attacks.membership``) run on students as they do on other models; they get the views of this file.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray
from ...audit.observer import FINAL_MODEL
from ...fl.probe import Candidates
from ...fl.protection import Protection
from ...fl.recorder import RoundView, View
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.transfer.engine import run_transfer, teacher_logits
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TransferPlan, TransferTask
from ..attack import Knowledge
from ..shadow_bank import ShadowBank, true_class_logits

_FIRST_BLOCK = 2**29
"""Number of the batch of shadows, so that they share no random draw with an audit's runs."""


@dataclass(frozen=True, kw_only=True)
class ShadowStudents:
    """A set of students with what attacks on them may use, and the truth about each.

    Args:
        models: (M, d).
        bank: their logits on the candidates and on the population.
        candidates: all samples of the teachers.
        population: images and labels that neither a teacher nor a student was trained on.
    """

    data: TransferTask
    plan: TransferPlan
    models: Tensor
    bank: ShadowBank
    candidates: Candidates
    population: tuple[Tensor, Tensor]

    def view(self, target: int) -> View:
        """Return what the public receives of one student: the final model of a training in one round."""
        return student_view(self.plan, self.models[target : target + 1])

    def knowledge(self, target: int) -> Knowledge:
        """Return what an attack on one student may use: all other students but the one of the complementary half."""
        known = Knowledge.of(
            self.data.task,
            self.plan.as_training(),
            Protection(),
            candidates=self.candidates,
            shadows=self.bank.references(target),
        )
        return replace(known, public_images=self.population[0], public_labels=self.population[1])

    def members(self, target: int) -> BoolArray:
        """Return which candidates the teachers of one student held, ``(N,)``; no attack receives this."""
        return np.asarray(self.bank.included[target])


def student_view(plan: TransferPlan, models: Tensor) -> View:
    """Return published students ``(R, d)`` as the final models of a training in one round."""
    return View(observer=FINAL_MODEL, plan=plan.as_training(), rounds=(RoundView(round=0),), final_model=models.clone())


@dataclass(frozen=True, kw_only=True)
class ShadowTeachers:
    """The teachers of M transfers, which hold known random halves of the samples.

    Args:
        included: (M, pool) booleans, which samples the teachers hold.
        logits: (M, teachers, queries, classes), their answers to the queries.
    """

    included: Tensor
    logits: Tensor


def shadow_teachers(data: TransferTask, plan: TransferPlan, streams: Streams, *, count: int) -> ShadowTeachers:
    """Train the teachers of ``count`` transfers in pairs: a fair coin per sample decides in which one of a pair its
    teacher holds it.

    They share the public facts, the queries and the initial models; each has its own lots.

    Raises:
        ValueError: if the count is odd or below 2.
    """
    if count < 2 or count % 2:
        raise ValueError(f"the number of shadow students must be even and >= 2, because they are paired, got {count}")
    pool = len(data.task.labels)
    half = torch.from_numpy(streams.generator("shadow membership").random((count // 2, pool)) < 0.5)
    included = torch.stack([half, ~half], dim=1).flatten(0, 1)
    logits = teacher_logits(data, plan, streams, included=included, block=_FIRST_BLOCK)
    return ShadowTeachers(included=included, logits=logits)


def shadow_students(
    data: TransferTask, plan: TransferPlan, protection: TransferProtection, streams: Streams, teachers: ShadowTeachers
) -> ShadowStudents:
    """Train one student on the answers of each set of teachers; each has its own lots and noise."""
    task, included, logits = data.task, teachers.included, teachers.logits
    models = run_transfer(data, plan, protection, streams, logits=logits, replicas=len(logits), block=_FIRST_BLOCK)
    # Samples that no teacher holds are no candidates: a coin may include them, but nothing was trained on them.
    dealt = torch.from_numpy(np.unique(torch.cat(task.parts).numpy()))
    images, labels = task.images[dealt], task.labels[dealt]
    population = (
        torch.cat([task.outsider_images, task.test_images]),
        torch.cat([task.outsider_labels, task.test_labels]),
    )
    bank = ShadowBank(
        logits=_of_each(task, models, images, labels),
        included=included[:, dealt].numpy(),
        population=_of_each(task, models, *population),
        ids=dealt.numpy(),
        paired=True,
    )
    candidates = Candidates(images=images, labels=labels, clients=tuple(range(task.clients)))
    return ShadowStudents(data=data, plan=plan, models=models, bank=bank, candidates=candidates, population=population)


def _of_each(task: Task, models: Tensor, images: Tensor, labels: Tensor) -> FloatArray:
    return np.stack([true_class_logits(task.network, model, images, labels) for model in models])
