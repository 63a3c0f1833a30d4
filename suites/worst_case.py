"""Worst case: what differential privacy assumes that the adversary knows, namely everything but the one bit."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ..audit.observer import UPLOADS
from ..fl.plan import Plan
from ..fl.probe import CandidateProbe
from ..fl.protection import Protection
from ..fl.recorder import LotRecorder
from ..fl.task import Task
from ..fl.view import View


def known_rest(
    task: Task, plan: Plan, protection: Protection, lots: LotRecorder, view: View, probe: CandidateProbe
) -> Callable[[int, slice, Tensor], Tensor] | None:
    """(round, which candidates, their contributions ``(m, d)``) -> what all other samples of the client put into its
    upload, ``(m, d)``.

    None where there is no such sum: no noise law for the uploads, a law of whole reports and not of samples (local
    noise), several local steps (the models between them are hidden), or dropout (its draws are).
    """
    client = probe.shown.client
    law = protection.law(UPLOADS, plan, client)
    if law is None or not protection.per_sample or plan.algorithm.local_steps != 1:
        return None
    if task.network.dropout_rate or view.observer.rank < UPLOADS.rank:
        return None
    part = task.parts[client]

    @lru_cache(maxsize=1)
    def whole(number: int) -> tuple[Tensor, Tensor] | None:
        """The lot's noiseless sum ``(d,)`` and which candidates it holds; None where nobody was drawn."""
        broadcast = view.rounds[number].broadcast
        if broadcast is None or not lots.lots[number]:
            return None
        mask = lots.lots[number][0][0]
        drawn = part[mask]
        rows = task.network.sample_gradients(
            broadcast, task.images[drawn].unsqueeze(0), task.labels[drawn].unsqueeze(0)
        )
        inside = [bool(sample >= 0 and mask[sample]) for sample in probe.sample.tolist()]
        return law.contribution(rows[0]).sum(0), torch.tensor(inside)

    def rest(number: int, which: slice, contributions: Tensor) -> Tensor:
        known = whole(number)
        if known is None:
            return torch.zeros_like(contributions)
        total, inside = known
        return total - contributions * inside[which].unsqueeze(-1)

    return rest
