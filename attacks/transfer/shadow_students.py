"""Shadow students: whole transfers whose teachers held known random halves of the samples, for membership attacks.

A student never sees a teacher's samples, and reveals them only by the released labels. Attacks on a final model
(``attacks.membership``) run on students as they do on other models: to
them a student is the final model of a training in one round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...fl.protection import Protection
from ...fl.streams import Runs, Streams
from ...fl.transfer.engine import run_transfer, teacher_logits
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TransferPlan, TransferTask
from ..shadow_models import ShadowModels

_FIRST_BLOCK = 2**29
"""Number of the batch of shadows, so that they share no random draw with an audit's runs."""


@dataclass(frozen=True, kw_only=True)
class ShadowTeachers:
    """The teachers of M shadow transfers, who hold known random halves of the samples.

    Args:
        included: (M, pool) booleans, which samples the teachers hold.
        logits: (M, teachers, queries, classes), their answers to the queries.
    """

    included: Tensor
    logits: Tensor


def shadow_teachers(data: TransferTask, plan: TransferPlan, streams: Streams, *, count: int) -> ShadowTeachers:
    """Train the teachers of ``count`` shadow transfers in pairs: for each sample, a fair coin decides in which of a
    pair's two transfers a teacher holds the sample.

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
) -> ShadowModels:
    """Train one student on the answers of each set of teachers; each student has its own lots and noise."""
    logits = teachers.logits
    runs = Runs(replicas=len(logits), block=_FIRST_BLOCK)
    models = run_transfer(data, plan, protection, streams, logits=logits, runs=runs)
    return ShadowModels.of(data.task, plan.as_training(), Protection(), models=models, included=teachers.included)
