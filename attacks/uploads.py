"""Reads the gradients behind the uploads of a round from a view; sums and shuffled reports are converted to stand-ins
for uploads.

The sum of a round becomes one upload of one client whose lot is all clients' lots together. Shuffled reports become
uploads with arbitrary numbers for senders: row i has sender i, which identifies no client.
"""

from abc import ABC
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Setting
from ..audit.observer import AGGREGATE, SHUFFLED, UPLOADS, Observer
from ..fl.fields import Index
from ..fl.laws import GaussianLaw, Law, Mixing, ReportLaw
from ..fl.message import Message
from ..fl.plan import Plan
from ..fl.recorder import RoundView, View
from ..fl.sampling import FixedSize, Sampling
from .attack import Attack, Knowledge, Undefined, clustered_setting


@dataclass(frozen=True, kw_only=True)
class Uploads:
    """The uploads that the server received in one round, with the gradients that an attack computes from them.

    ``values``: (n, d), as sent; ``gradients``: (n, d), computed from the values; ``model``: (d,), at which they were
    computed; ``senders``: client number of each row.
    """

    values: Tensor
    gradients: Tensor
    model: Tensor
    senders: tuple[int, ...]

    def only(self, rows: Tensor) -> "Uploads":
        """Return the uploads with the numbers ``rows (m,)``, in that order."""
        senders = tuple(self.senders[row] for row in rows.tolist())
        return replace(self, values=self.values[rows], gradients=self.gradients[rows], senders=senders)


def read_uploads(view: View, knowledge: Knowledge, round: int) -> Uploads:
    """Return the round's uploads as gradients: a FedSGD upload is minus the gradient, a FedAvg upload is a negative
    multiple of the mean gradient.

    Raises:
        Undefined: if the uploads are masked words of a secure sum.
        ValueError: if the view holds no such round, no uploads, several replicas or only some coordinates, or if a row
            is zero (the client was absent) or not finite.
    """
    seen = _round(view, round)
    reports = _reports(seen)
    if view.coordinates is not None or seen.broadcast is None:
        raise ValueError(
            f"view of round {round} must hold the model and all coordinates of the uploads, "
            "but lacks the model or some coordinates"
        )
    check_unmasked(reports)
    # Reports may be integers, which have no gradient.
    values = reports.values[0].to(seen.broadcast.dtype)
    _check_rows(values, reports.senders, round)
    return Uploads(
        values=values,
        gradients=knowledge.plan.algorithm.gradient(values),
        model=seen.broadcast[0],
        senders=_senders(reports),
    )


def count_uploads(view: View, round: int) -> int:
    """Return the number of client uploads in one round of a view. Raises ValueError if the view holds none.

    A null attack reads nothing else of a view. Errors are those of `read_uploads`.
    """
    return _reports(_round(view, round)).values.shape[1]


def upload_senders(view: View, round: int) -> tuple[int, ...]:
    """Return the client number of each upload in one round of a view.

    Raises ValueError like `read_uploads`.
    """
    return _senders(_reports(_round(view, round)))


def upload_setting(view: View, rounds: int = 1) -> Setting:
    """Return the setting (unit, adjacency, observer, rounds) of attack results about the samples behind each upload;
    all uploads of one run depend on the same model. ``rounds``: the rounds whose uploads the attack reads.
    """
    return clustered_setting(view, Unit.SAMPLE, Adjacency.REPLACE_ONE, rounds=rounds)


def check_unmasked(reports: Message) -> None:
    """Raise Undefined if the reports are masked for secure aggregation, so that each of them reveals nothing
    by itself.
    """
    if reports.masked:
        raise Undefined(
            "uploads are masked words of a secure sum (secure aggregation), each of which reveals nothing: "
            "attack the aggregate instead"
        )


@dataclass(frozen=True, kw_only=True)
class UploadAttack(Attack, ABC):
    """A base class of attacks on the uploads of one ``round``."""

    round: Index = 0


def _round(view: View, round: int) -> RoundView:
    for seen in view.rounds:
        if seen.round == round:
            return seen
    raise ValueError(
        f"the view must hold the attacked round {round}, got rounds {[seen.round for seen in view.rounds]}"
    )


def _reports(seen: RoundView) -> Message:
    if seen.reports is None:
        raise ValueError(f"view of round {seen.round} must hold uploads, got none")
    if len(seen.reports.values) != 1:
        raise ValueError(f"view of round {seen.round} must hold one replica (run), got {len(seen.reports.values)}")
    return seen.reports


def _senders(reports: Message) -> tuple[int, ...]:
    return tuple(range(reports.values.shape[1])) if reports.senders is None else reports.senders


def _check_rows(values: Tensor, senders: tuple[int, ...] | None, round: int) -> None:
    # Zero rows would have no direction, and a search would return noise that looks like a result.
    names = torch.tensor(senders if senders is not None else range(len(values)))
    for fault, bad in (("all zeros", (values == 0).all(1)), ("not finite", ~values.isfinite().all(1))):
        if bad.any():
            raise ValueError(
                f"uploads of round {round} must be finite and not zero, got {fault} from clients {names[bad].tolist()}"
            )


@dataclass(frozen=True, kw_only=True)
class ReducedView:
    """An adversary's view and knowledge, converted to the form that attacks on uploads need; ``view.observer`` still
    names the original observer.
    """

    view: View
    knowledge: Knowledge


def reduce_view(view: View, knowledge: Knowledge) -> ReducedView:
    """Convert the sums or shuffled reports that an observer receives into uploads; a view that has uploads stays
    unchanged.

    Raises:
        Undefined: if nothing that the observer receives is an upload of some clients' samples.
    """
    if view.observer.rank >= UPLOADS.rank:
        return ReducedView(view=view, knowledge=knowledge)
    if view.observer.rank == SHUFFLED.rank:
        return _of_multiset(view, knowledge)
    if view.observer.rank == AGGREGATE.rank:
        return _of_sum(view, knowledge)
    raise Undefined(
        f"{view.observer.phrase} observes models only, but attacks on uploads need at least the sum of a round's "
        "updates"
    )


def _of_sum(view: View, knowledge: Knowledge) -> ReducedView:
    """One upload per round. A mean weighted by the clients' samples is the gradient of all lots as one lot.

    A defense that gives unequal clients equal weights, and clients that dropped out of a round, are not accounted for.
    """
    plan = knowledge.plan
    if plan.cohort_rate != 1:
        raise Undefined("a sum can be attacked as one batch only if every client takes part in every round")
    if knowledge.network.mixes and plan.clients > 1:
        raise Undefined(
            "each client's batch has its own batch-norm statistics, so the sum is not the gradient of one larger batch"
        )
    if plan.algorithm.local_steps != 1:
        raise Undefined(
            "with several local steps the clients' models differ, so the sum is not the upload of one larger batch"
        )
    pooled = replace(plan.resized((sum(plan.sizes),)), lot=_pooled_lot(plan))
    law = _common(knowledge, view.observer)
    # A law of reports describes the clipping of one client's report, not of one larger lot.
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
        raise Undefined(
            "clients hold different numbers of samples but draw batches of equal size, so their sum weighs samples "
            "unequally"
        )
    return FixedSize(round(plan.clients * plan.expected_lot(0)))


def _row(seen: RoundView) -> Message:
    if seen.aggregate is None:
        raise ValueError(f"view of round {seen.round} must hold the aggregate, got none")
    rows = seen.aggregate.unsqueeze(1)
    return Message(values=rows, present=torch.ones(rows.shape[:2], dtype=torch.bool), senders=(0,))


def _of_multiset(view: View, knowledge: Knowledge) -> ReducedView:
    """The rows that arrived, if each is one client's report and all clients have the same size."""
    plan = knowledge.plan
    if len(set(plan.sizes)) > 1:
        raise Undefined(
            f"shuffled reports hide their senders, and clients hold {min(plan.sizes)} to {max(plan.sizes)} samples, "
            "so the number of samples behind a report is not known"
        )
    law = _common(knowledge, view.observer)
    if isinstance(law, ReportLaw) and law.mixing is Mixing.COORDINATES:
        raise Undefined("each coordinate is shuffled separately, so no received vector is one client's report")
    # The channel may then do more than shuffle, so a row need not be one report.
    if law is None and knowledge.law(UPLOADS, 0) is not None:
        raise Undefined(
            "the defense publishes the distribution of a report but not of a shuffled one, so a received vector may "
            "not be one client's report"
        )
    rounds = tuple(replace(seen, reports=_named(seen, plan)) for seen in view.rounds)
    return ReducedView(
        view=replace(view, rounds=rounds),
        knowledge=replace(knowledge, law=lambda observer, client: law),
    )


def _named(seen: RoundView, plan: Plan) -> Message:
    """The rows present in the first replica, with row numbers as senders."""
    if seen.reports is None:
        raise ValueError(f"view of round {seen.round} must hold reports, got none")
    rows: Tensor = seen.reports.values[:1, seen.reports.present[0]]
    if not rows.is_floating_point() or rows.shape[2] != plan.layout.dim or rows.shape[1] > plan.clients:
        kind = f"{rows.shape[1]} rows of {rows.shape[2]} {str(rows.dtype).removeprefix('torch.')}s"
        raise Undefined(f"what arrived is not a client's update but {kind}, so attacks on uploads cannot use it")
    present = torch.ones(rows.shape[:2], dtype=torch.bool)
    return Message(values=rows, present=present, senders=tuple(range(rows.shape[1])))


def _common(knowledge: Knowledge, observer: Observer) -> Law | None:
    """The law that all clients share; None where they differ."""
    first, *others = (knowledge.law(observer, client) for client in range(knowledge.plan.clients))
    return first if all(law == first for law in others) else None
