"""Computes the gradient behind each client's upload of one round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Setting
from ..fl.fields import check_count
from ..fl.message import Message
from ..fl.view import RoundView, View
from .attack import Knowledge, Undefined, clustered_setting


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
    all uploads of one run depend on the same model. ``rounds``: whose uploads the attack reads.
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


def check_round(round: int) -> None:
    """Raise ValueError unless ``round`` is a whole number >= 0."""
    check_count("round", round, least=0)


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
