"""Canary: what a planted row shows, with everything known but the one bit (Nasr et al. 2023, section 4)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Design, Projections, Setting
from ..audit.observer import UPLOADS
from ..fl.law import Law
from ..fl.plan import Plan
from ..fl.probe import Canary
from ..fl.view import View
from .attack import Attack, Knowledge, Level


@dataclass(frozen=True, kw_only=True)
class CanaryProjections(Attack):
    """For every replica and round: how far the release moved along the canary, in units of the canary's own
    contribution.

    The canary stands on an unused weight, so the rest of the release is zero along it and nothing needs to be
    subtracted. Each replica has its own cohorts, lots and noise, so replicas are independent trials. Which observer
    looks is the claim's to say: the view names it.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Projections:
        if knowledge.canary is None:
            raise ValueError("CanaryProjections needs a planted canary")
        canary, sender = knowledge.canary, canary_sender(knowledge.canary, view.plan)
        shift, centre = worlds(canary, knowledge.law(view.observer, sender), view.coordinates)
        square = float(shift.double().square().sum())
        releases = [_release(view, number, sender) for number in range(len(view.rounds))]
        values = [((release - centre) @ shift).double().numpy() / square for release, _ in releases]
        seen = [present.numpy() for _, present in releases]
        setting = Setting(
            unit=canary.unit,
            adjacency=Adjacency.ADD_REMOVE if canary.absent is None else Adjacency.REPLACE_ONE,
            observer=view.observer,
            rounds=view.plan.rounds,
            design=Design.INDEPENDENT,
        )
        return Projections(np.stack(values, axis=1), np.stack(seen, axis=1), setting)


def canary_sender(canary: Canary, plan: Plan) -> int:
    """The client in whose report the canary stands: its holder, or the client that it is."""
    return canary.client if canary.unit is Unit.SAMPLE else plan.clients


def worlds(canary: Canary, law: Law | None, coordinates: slice | None) -> tuple[Tensor, Tensor]:
    """What the canary's presence shifts in one release, and where the release stands without it."""

    def contribution(row: Tensor) -> Tensor:
        whole = row if law is None else law.contribution(row)
        return whole if coordinates is None else whole[coordinates]

    present = contribution(canary.present)
    absent = torch.zeros_like(present) if canary.absent is None else contribution(canary.absent)
    return present - absent, absent


def _release(view: View, number: int, sender: int) -> tuple[Tensor, Tensor]:
    """What the observer saw in one round ``(R, k)`` and in which replicas it saw anything ``(R,)``."""
    seen = view.rounds[number]
    if view.observer.rank == UPLOADS.rank and seen.reports is not None:
        senders = seen.reports.senders or ()
        if sender not in senders:
            return torch.zeros_like(view.final_model), torch.zeros(len(view.final_model), dtype=torch.bool)
        row = senders.index(sender)
        return seen.reports.values[:, row], seen.reports.present[:, row]
    everybody = torch.ones(len(view.final_model), dtype=torch.bool)
    if seen.aggregate is not None:
        return seen.aggregate, everybody
    if seen.broadcast is None:
        raise ValueError(f"a canary cannot be scored by {view.observer}: it sees no round")
    last = number + 1 == len(view.rounds)
    after = view.final_model if last else view.rounds[number + 1].broadcast
    if after is None:
        raise ValueError(f"round {number + 1} holds no broadcast model")
    return view.plan.algorithm.aggregate_between(seen.broadcast, after), everybody
