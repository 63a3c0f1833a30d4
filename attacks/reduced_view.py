"""Seat: what one sees who sees less than the uploads, laid out as uploads, so that attacks on these run from there.

The sum of a round is one upload of one client, whose lot is everybody's. Shuffled reports are uploads of nobody knows
whom: row i is called client i, which names no client.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..audit.observer import AGGREGATE, SHUFFLED, UPLOADS, Observer
from ..fl.laws.law import GaussianLaw, Law, Mixing, ReportLaw
from ..fl.message import Message
from ..fl.partitions.sampling import FixedSize, Sampling
from ..fl.plan import Plan
from ..fl.view import RoundView, View
from .attack import Knowledge, Undefined


@dataclass(frozen=True, kw_only=True)
class ReducedView:
    """A view and knowledge that an attack on uploads reads; ``view.observer`` is still who looks."""

    view: View
    knowledge: Knowledge


def seat(view: View, knowledge: Knowledge) -> ReducedView:
    """What the view's observer has, as uploads; as it is for who sees these.

    Raises:
        Undefined: where that observer has nothing which is an upload of somebody's samples.
    """
    if view.observer.rank >= UPLOADS.rank:
        return ReducedView(view=view, knowledge=knowledge)
    if view.observer.rank == SHUFFLED.rank:
        return _of_multiset(view, knowledge)
    if view.observer.rank == AGGREGATE.rank:
        return _of_sum(view, knowledge)
    raise Undefined(f"{view.observer.phrase} sees models only: attacks on uploads need at least a round's sum")


def _of_sum(view: View, knowledge: Knowledge) -> ReducedView:
    """One upload a round. A mean weighted by the clients' samples is the gradient of all lots as one; a defense that
    weighs unequal clients alike is read as if it did not, and who dropped out of a round as if it had stayed.
    """
    plan = knowledge.plan
    if plan.cohort_rate != 1:
        raise Undefined("the sum names nobody: it is read as one lot only where every client is in every round")
    if knowledge.network.mixes and plan.clients > 1:
        raise Undefined("each client's lot has batch statistics of its own: their sum is the gradient of no larger lot")
    if plan.algorithm.local_steps != 1:
        raise Undefined("several local steps led each client its own way: their sum is no upload of one larger lot")
    pooled = replace(plan.resized((sum(plan.sizes),)), lot=_pooled_lot(plan))
    law = _common(knowledge, view.observer)
    # A law of reports clips each client's own: of one larger lot it says nothing.
    of_samples = law if isinstance(law, GaussianLaw) and law.scale < 0 else None
    rounds = tuple(replace(seen, reports=_row(seen)) for seen in view.rounds)
    return ReducedView(
        view=replace(view, plan=pooled, rounds=rounds),
        knowledge=replace(knowledge, plan=pooled, law=lambda observer, client: of_samples),
    )


def _pooled_lot(plan: Plan) -> Sampling:
    """The rule that draws as many of all samples as the clients' lots hold together."""
    if not isinstance(plan.lot, FixedSize):
        return plan.lot
    if len(set(plan.sizes)) > 1:
        raise Undefined("lots of one size from clients of several: their sum weighs samples unequally")
    return FixedSize(round(plan.clients * plan.expected_lot(0)))


def _row(seen: RoundView) -> Message:
    if seen.aggregate is None:
        raise ValueError(f"view of round {seen.round} must hold the aggregate, got none")
    rows = seen.aggregate.unsqueeze(1)
    return Message(values=rows, present=torch.ones(rows.shape[:2], dtype=torch.bool), senders=(0,))


def _of_multiset(view: View, knowledge: Knowledge) -> ReducedView:
    """The rows that arrived, where each is one client's report and all clients are alike to who does not know them."""
    plan = knowledge.plan
    if len(set(plan.sizes)) > 1:
        raise Undefined(
            f"who sent a shuffled report is hidden, and clients hold {min(plan.sizes)} to {max(plan.sizes)} samples"
        )
    law = _common(knowledge, view.observer)
    if isinstance(law, ReportLaw) and law.mixing is Mixing.COORDINATES:
        raise Undefined("each coordinate is shuffled by itself: no row is one client's report")
    if law is None and knowledge.law(UPLOADS, 0) is not None:
        raise Undefined("the defense publishes a law of reports and none of shuffled ones: rows may not be whole")
    rounds = tuple(replace(seen, reports=_named(seen, plan)) for seen in view.rounds)
    return ReducedView(
        view=replace(view, rounds=rounds),
        knowledge=replace(knowledge, law=lambda observer, client: law),
    )


def _named(seen: RoundView, plan: Plan) -> Message:
    """The rows that are there, of the first replica, with numbers for senders."""
    if seen.reports is None:
        raise ValueError(f"view of round {seen.round} must hold reports, got none")
    rows: Tensor = seen.reports.values[:1, seen.reports.present[0]]
    if not rows.is_floating_point() or rows.shape[2] != plan.layout.dim or rows.shape[1] > plan.clients:
        kind = f"{rows.shape[1]} rows of {rows.shape[2]} {str(rows.dtype).removeprefix('torch.')}s"
        raise Undefined(f"what arrived is no client's update but {kind}")
    present = torch.ones(rows.shape[:2], dtype=torch.bool)
    return Message(values=rows, present=present, senders=tuple(range(rows.shape[1])))


def _common(knowledge: Knowledge, observer: Observer) -> Law | None:
    """The law of every client, where they have one."""
    first, *others = (knowledge.law(observer, client) for client in range(knowledge.plan.clients))
    return first if all(law == first for law in others) else None
