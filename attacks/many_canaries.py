"""Crowd: many canaries in one run, each scored along its own unused weight (Steinke et al. 2023, section 6)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Design, Projections, Setting
from ..audit.observer import UPLOADS
from ..fl.canary import CanarySet
from ..fl.laws.law import Law
from ..fl.plan import Plan
from ..fl.view import View
from .attack import Attack, Knowledge, Level
from .canary import releases


@dataclass(frozen=True, kw_only=True)
class CanarySetProjections(Attack):
    """For every canary of one run and every release: how far it moved along that canary's weight, in units of the
    canary's own contribution. The rows of the evidence are canaries, not trials: they share the run.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Projections:
        crowd = knowledge.canary
        if not isinstance(crowd, CanarySet):
            raise ValueError("CanarySetProjections needs a planted crowd")
        if len(view.final_model) != 1:
            raise ValueError(f"a crowd stands in one run, got {len(view.final_model)} replicas")
        law = knowledge.law(view.observer, crowd.client if crowd.unit is Unit.SAMPLE else view.plan.clients)
        shift, centre = _shift_and_centre(crowd, law, view.plan)
        seen = _each_ones_report(view, crowd) or _one_release_for_all(view, crowd, knowledge.initial)
        values = [(value - rounds * centre).double().numpy() / shift for value, _, rounds in seen]
        setting = Setting(
            unit=crowd.unit,
            adjacency=Adjacency.REPLACE_ONE if crowd.replaced else Adjacency.ADD_REMOVE,
            observer=view.observer,
            rounds=len(view.rounds),
            design=Design.ONE_RUN,
        )
        return Projections(np.stack(values, axis=1), np.stack([mask.numpy() for _, mask, _ in seen], axis=1), setting)


_Seen = list[tuple[Tensor, Tensor, int]]
"""For each release: every canary's coordinate ``(m,)``, where it was seen ``(m,)``, and the rounds that it spans."""


def _one_release_for_all(view: View, crowd: CanarySet, initial: Tensor | None) -> _Seen:
    """All canaries stand in the same release: the holder's upload, the sum, the models."""
    size, kept = len(crowd.coins), slice(-len(crowd.coins), None)
    return [
        (release.values[0, kept], release.seen[:1].expand(size), release.rounds)
        for release in releases(view, crowd.client, initial)
    ]


def _each_ones_report(view: View, crowd: CanarySet) -> _Seen:
    """Who sees the uploads sees each canary client's own; empty for anybody else, and for canaries that are samples."""
    if view.observer.rank < UPLOADS.rank or crowd.unit is Unit.SAMPLE:
        return []
    size, found = len(crowd.coins), []
    for seen in view.rounds:
        value, came = torch.zeros(size), torch.zeros(size, dtype=torch.bool)
        reports = seen.reports
        for row, sender in enumerate(() if reports is None else reports.senders or ()):
            number = sender - view.plan.clients
            if reports is not None and number >= 0:
                value[number] = reports.values[0, row, number - size]
                came[number] = reports.present[0, row]
        found.append((value, came, 1))
    return found


def _shift_and_centre(crowd: CanarySet, law: Law | None, plan: Plan) -> tuple[float, float]:
    """What a canary's presence shifts along its weight, and where the release stands without it: the same for all."""
    row = torch.zeros(crowd.dim)
    row[-1] = crowd.length
    scale = 1.0 if crowd.unit is not Unit.SAMPLE else plan.algorithm.linear_scale or -1.0
    present, absent = (float((scale * one if law is None else law.contribution(one))[-1]) for one in (row, -row))
    return (present - absent, absent) if crowd.replaced else (present, 0.0)
