"""Attack that infers which of many canaries one run contains (Steinke et al. 2023, section 6).

Each canary is scored along its own unused weight.
"""

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
    """An attack that reads, in every release, the model weight that each canary alone changes, in units of the canary's
    contribution.

    The rows of the evidence are canaries, not trials: they share the run.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Projections:
        canaries = knowledge.canary
        if not isinstance(canaries, CanarySet):
            raise ValueError("CanarySetProjections needs a set of canaries that was planted before training, got none")
        if len(view.final_model) != 1:
            raise ValueError(
                f"a set of canaries must be audited in a single run, got {len(view.final_model)} replicas (runs)"
            )
        law = knowledge.law(view.observer, canaries.client if canaries.unit is Unit.SAMPLE else view.plan.clients)
        shift, centre = _shift_and_centre(canaries, law, view.plan)
        seen = _each_canary_report(view, canaries) or _one_release_for_all(view, canaries, knowledge.initial)
        values = [(value - rounds * centre).double().numpy() / shift for value, _, rounds in seen]
        setting = Setting(
            unit=canaries.unit,
            adjacency=Adjacency.REPLACE_ONE if canaries.replaced else Adjacency.ADD_REMOVE,
            observer=view.observer,
            rounds=len(view.rounds),
            design=Design.ONE_RUN,
        )
        return Projections(np.stack(values, axis=1), np.stack([mask.numpy() for _, mask, _ in seen], axis=1), setting)


_Seen = list[tuple[Tensor, Tensor, int]]
"""For each release: every canary's coordinate ``(m,)``, where it was seen ``(m,)``, and the rounds that it covers."""


def _one_release_for_all(view: View, canaries: CanarySet, initial: Tensor | None) -> _Seen:
    """All canaries are in the same release: the holder's upload, the sum, or the models."""
    # Canary j is on the j-th inert weight, and the inert weights are the last coordinates.
    size, kept = len(canaries.coins), slice(-len(canaries.coins), None)
    return [
        (release.values[0, kept], release.seen[:1].expand(size), release.rounds)
        for release in releases(view, canaries.client, initial)
    ]


def _each_canary_report(view: View, canaries: CanarySet) -> _Seen:
    """Each canary client's own upload; empty for observers without uploads and for canaries that are samples."""
    if view.observer.rank < UPLOADS.rank or canaries.unit is Unit.SAMPLE:
        return []
    size, found = len(canaries.coins), []
    for seen in view.rounds:
        value, came = torch.zeros(size), torch.zeros(size, dtype=torch.bool)
        reports = seen.reports
        for row, sender in enumerate(() if reports is None else reports.senders or ()):
            # Canary clients follow the plan's own clients.
            number = sender - view.plan.clients
            if reports is not None and number >= 0:
                value[number] = reports.values[0, row, number - size]
                came[number] = reports.present[0, row]
        found.append((value, came, 1))
    return found


def _shift_and_centre(canaries: CanarySet, law: Law | None, plan: Plan) -> tuple[float, float]:
    """How a canary's presence shifts the release along its weight, and the centre without it: equal for all."""
    row = torch.zeros(canaries.dim)
    row[-1] = canaries.length
    scale = 1.0 if canaries.unit is not Unit.SAMPLE else plan.algorithm.linear_scale or -1.0
    present, absent = (float((scale * one if law is None else law.contribution(one))[-1]) for one in (row, -row))
    return (present - absent, absent) if canaries.replaced else (present, 0.0)
