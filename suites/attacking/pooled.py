"""Merge all clients into one, to score attacks by observers that do not learn which client sent which update."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import LabelCounts, Reconstructions, TokenGuesses
from ...audit.observer import UPLOADS
from ...fl.plan import Plan
from ...fl.recorder import LotRecorder
from ...fl.task import Task


@dataclass(frozen=True, kw_only=True)
class PooledTruth:
    """A federation's data as if one client held all clients' samples, with the batches of samples used in training."""

    task: Task
    lots: dict[int, LotRecorder]


def is_pooled(evidence: Reconstructions | LabelCounts | TokenGuesses) -> bool:
    """Return whether an attack's output comes from an observer that does not learn which client sent which update."""
    return evidence.setting.observer.rank < UPLOADS.rank


def pooled_evidence(
    evidence: Reconstructions | LabelCounts | TokenGuesses,
) -> Reconstructions | LabelCounts | TokenGuesses:
    """Return an attack's output as if all clients had sent one joint update: all reconstructed images or texts, or the
    counts of labels or tokens summed over all clients.
    """
    if isinstance(evidence, Reconstructions):
        return replace(evidence, uploads=np.zeros(len(evidence.images), dtype=np.int64))
    if isinstance(evidence, TokenGuesses):
        texts = None if evidence.texts is None else (np.concatenate(evidence.texts),)
        return replace(evidence, counts=evidence.counts.sum(0, keepdims=True), texts=texts)
    return replace(evidence, counts=evidence.counts.sum(0, keepdims=True))


def pooled_truth(task: Task, plan: Plan, lots: Mapping[int, LotRecorder]) -> PooledTruth:
    """Merge all clients' samples and training batches into those of a single client, in the order of the clients."""
    rounds = [
        _pooled_masks([_counted(lots[client].lots[number], plan, part) for client, part in enumerate(task.parts)])
        for number in range(max((len(found.lots) for found in lots.values()), default=0))
    ]
    return PooledTruth(
        task=replace(task, parts=(torch.cat(task.parts),)),
        lots={0: LotRecorder(client=0, lots=rounds)},
    )


def _counted(masks: list[Tensor], plan: Plan, part: Tensor) -> list[Tensor]:
    # A full lot is the same in each step: its samples are in the truth only once.
    counted = masks[:1] if plan.lot.rate(len(part)) == 1 else masks
    # A client that took no part keeps its place in the mask, so that indices of the pooled lot stay right.
    return counted or [torch.zeros(1, len(part), dtype=torch.bool)]


def _pooled_masks(clients: list[list[Tensor]]) -> list[Tensor]:
    """For each step the concatenated masks of all clients; a client that takes fewer steps has an empty mask."""
    steps = max(len(masks) for masks in clients)
    return [
        torch.cat([masks[step] if step < len(masks) else torch.zeros_like(masks[0]) for masks in clients], dim=1)
        for step in range(steps)
    ]
