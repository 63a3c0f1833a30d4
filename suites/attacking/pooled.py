"""Pooled: evidence and truth of all clients as one lot, for observers who cannot tell whose upload is whose."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import LabelCounts, Reconstructions
from ...audit.observer import UPLOADS
from ...fl.plan import Plan
from ...fl.recorder import LotRecorder
from ...fl.task import Task


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A task of one client that holds what all held, and its lots."""

    task: Task
    lots: dict[int, LotRecorder]


def is_pooled(evidence: Reconstructions | LabelCounts) -> bool:
    """Whether its observer sees no senders."""
    return evidence.setting.observer.rank < UPLOADS.rank


def pooled_evidence(evidence: Reconstructions | LabelCounts) -> Reconstructions | LabelCounts:
    """All images, or the sum of all counts, as of one upload: which row is whose is not said."""
    if isinstance(evidence, Reconstructions):
        return replace(evidence, uploads=np.zeros(len(evidence.images), dtype=np.int64))
    return replace(evidence, counts=evidence.counts.sum(0, keepdims=True))


def pooled_truth(task: Task, plan: Plan, lots: Mapping[int, LotRecorder]) -> Pool:
    """Clients one after the other; of a lot that is everything only the first step, as it is in each."""
    rounds = [
        _pooled_masks([_counted(lots[client].lots[number], plan, part) for client, part in enumerate(task.parts)])
        for number in range(max((len(found.lots) for found in lots.values()), default=0))
    ]
    return Pool(
        task=replace(task, parts=(torch.cat(task.parts),)),
        lots={0: LotRecorder(client=0, lots=rounds)},
    )


def _counted(masks: list[Tensor], plan: Plan, part: Tensor) -> list[Tensor]:
    kept = masks[:1] if plan.lot.rate(len(part)) == 1 else masks
    return kept or [torch.zeros(1, len(part), dtype=torch.bool)]


def _pooled_masks(clients: list[list[Tensor]]) -> list[Tensor]:
    """Step by step, each client's mask beside the others'; empty where a client takes fewer steps."""
    steps = max(len(masks) for masks in clients)
    return [
        torch.cat([masks[step] if step < len(masks) else torch.zeros_like(masks[0]) for masks in clients], dim=1)
        for step in range(steps)
    ]
