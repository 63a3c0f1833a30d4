"""Attacks that infer whether one planted canary is present, or which of many one run contains.

One canary is the worst case of many runs (Nasr et al. 2023, section 4). Of many canaries in one run, each is scored
along its own unused weight (Steinke et al. 2023, section 6).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Design, Projections, Setting
from ..audit.observer import UPLOADS
from ..fl.canary import Canary, CanarySet, DataCanary
from ..fl.laws import Law
from ..fl.models.network import Network
from ..fl.plan import Plan
from ..fl.recorder import View
from .attack import Attack, Knowledge, Level


@dataclass(frozen=True, kw_only=True)
class SeenRelease:
    """A release that the observer received in one round, or over a whole run.

    Args:
        values: (R, k); seen: (R,), false in replicas where the canary's sender sent nothing.
        model: (R, d), the last public model before the release; rounds: number of rounds that the release covers.
    """

    values: Tensor
    seen: Tensor
    model: Tensor
    rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class CanaryProjections(Attack):
    """An attack that projects every release on the canary's direction, in units of the canary's contribution to the
    first release.

    A canary on an unused weight is the only contribution there: what others contribute is zero along it, and the
    projection is that of ``Projections``. For other canaries the rest is not subtracted. That costs power but not
    validity, because replicas are independent trials with their own cohorts, lots and noise. The claim determines the
    observer, which the view names. For an observer of the final model alone, the whole change from the public initial
    model is projected.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Projections:
        canary = knowledge.canary
        if not isinstance(canary, Canary | DataCanary):
            raise ValueError("CanaryProjections needs a canary that was planted before training, got none")
        sender = canary_sender(canary, view.plan)
        # `square` stays zero until the first release has set the unit.
        law, square, values, seen = knowledge.law(view.observer, sender), 0.0, [], []
        for release in releases(view, sender, knowledge.initial):
            shift, centre = shift_and_centre(
                canary, law, view.plan, knowledge.network, release.model, coordinates=view.coordinates
            )
            # The first public model is the same in all replicas, so it gives one unit for all of them.
            square = square or float(shift[0].double().square().sum())
            if not square > 0:
                raise ValueError(
                    "the canary does not change any update at the initial model, so no release can be projected on it"
                )
            along = ((release.values - release.rounds * centre) * shift).sum(-1)
            values.append(along.double().numpy() / square)
            seen.append(release.seen.numpy())
        setting = Setting(
            unit=canary.unit,
            adjacency=canary.adjacency,
            observer=view.observer,
            rounds=len(view.rounds),
            design=Design.INDEPENDENT,
        )
        return Projections(np.stack(values, axis=1), np.stack(seen, axis=1), setting)


def canary_sender(canary: Canary | DataCanary, plan: Plan) -> int:
    """Return the client whose report contains the canary: the first client that holds samples of it, or the canary
    client.
    """
    if canary.holders:
        return canary.holders[0]
    return plan.clients if canary.place is None else canary.place


def shift_and_centre(
    canary: Canary | DataCanary,
    law: Law | None,
    plan: Plan,
    network: Network,
    model: Tensor,
    *,
    coordinates: slice | None = None,
) -> tuple[Tensor, Tensor]:
    """Return by how much the canary shifts a release computed at ``model``, an array ``(R, d)`` with one row per run,
    and the centre (noiseless value) of the release without the canary.

    Both are ``(R, k)`` for a canary of data and ``(1, k)`` for a row. A canary of data contributes its gradient at that
    model; as a client, it contributes the update that it computes there with full lots and without noise.
    """
    # A sample's row is a gradient, which enters the update with the linear scale.
    scale = plan.algorithm.linear_scale or -1.0 if canary.holders else 1.0

    def contribution(arm: int) -> Tensor | None:
        row = _row(canary, arm, plan, network, model)
        if row is None:
            return None
        whole = scale * row if law is None else law.contribution(row)
        return whole if coordinates is None else whole[..., coordinates]

    present, absent = contribution(1), contribution(0)
    if present is None:
        raise ValueError("in runs with the canary (arm 1), the canary must have a vector or samples, got neither")
    return (present, torch.zeros_like(present)) if absent is None else (present - absent, absent)


def releases(view: View, sender: int, initial: Tensor | None) -> Iterator[SeenRelease]:
    """Yield what the observer received, round by round; for an observer of the final model alone, yield one release.

    Behind a shuffler the senders are hidden, so the multiset is summed. Raises ValueError where the initial model is
    needed and not given.
    """
    if view.rounds[0].broadcast is None:
        if initial is None:
            raise ValueError(
                f"{view.observer} does not observe rounds, so the projection needs the public initial model, got none"
            )
        first = initial.expand(len(view.final_model), -1)
        start = first if view.coordinates is None else first[:, view.coordinates]
        moved = view.plan.algorithm.aggregate_between(start, view.final_model)
        all_replicas = torch.ones(len(moved), dtype=torch.bool)
        yield SeenRelease(values=moved, seen=all_replicas, model=first, rounds=len(view.rounds))
        return
    for number, seen in enumerate(view.rounds):
        values, present = _seen_in_round(view, number, sender)
        if seen.broadcast is None:
            raise ValueError(f"view of round {number} must hold the broadcast model, got none")
        yield SeenRelease(values=values, seen=present, model=seen.broadcast)


def _row(canary: Canary | DataCanary, arm: int, plan: Plan, network: Network, model: Tensor) -> Tensor | None:
    """The canary's raw row: ``(1, d)`` as planted, or ``(R, d)`` computed from its data at ``model``."""
    if isinstance(canary, Canary):
        # The copies of a user's row are equal: one of them has their direction.
        return canary.rows(arm)[..., :1, :] if canary.there(arm) else None
    held = canary.samples(arm)
    if held is None:
        return None
    images, labels = (part.expand(len(model), *part.shape) for part in held)
    weights = torch.full(labels.shape, 1 / labels.shape[1])
    if canary.holders:
        return network.gradient(model, images, labels, weights)
    # The client's own rule, step by step: Adam or several steps would not be linear in one gradient.
    local, state = model, plan.algorithm.start(model)
    for _ in range(plan.algorithm.local_steps):
        local, state = plan.algorithm.step(local, network.gradient(local, images, labels, weights), state)
    return plan.algorithm.update(model, local)


def _seen_in_round(view: View, number: int, sender: int) -> tuple[Tensor, Tensor]:
    """What the observer saw in one round, ``(R, k)``, and in which replicas it saw anything, ``(R,)``."""
    seen = view.rounds[number]
    # No row can be assigned to the canary's client.
    if seen.reports is not None and seen.reports.senders is None:
        return seen.reports.values.sum(1), seen.reports.present.any(1)
    if view.observer.rank == UPLOADS.rank and seen.reports is not None:
        senders = seen.reports.senders or ()
        if sender not in senders:
            return torch.zeros_like(view.final_model), torch.zeros(len(view.final_model), dtype=torch.bool)
        row = senders.index(sender)
        return seen.reports.values[:, row], seen.reports.present[:, row]
    all_replicas = torch.ones(len(view.final_model), dtype=torch.bool)
    if seen.aggregate is not None:
        return seen.aggregate, all_replicas
    last = number + 1 == len(view.rounds)
    after = view.final_model if last else view.rounds[number + 1].broadcast
    if seen.broadcast is None or after is None:
        raise ValueError(f"view of round {number} must hold the models before and after it, got none")
    return view.plan.algorithm.aggregate_between(seen.broadcast, after), all_replicas


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
