"""Alignment: how every candidate's gradient lies to every upload of a round, all clients in one product of matrices."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ...audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED
from ...fl.models.network import Network
from ...fl.probe import Candidates, OwnerCandidates
from ...fl.view import RoundView, View
from ..attack import Knowledge, Undefined
from ..uploads import check_unmasked

CHUNK = 100
"""Candidates whose gradients are held at once: larger temporaries cost more in page faults than in arithmetic."""


@dataclass(frozen=True, kw_only=True)
class RoundRows:
    """What is seen of one round: ``values (m, d)`` as they were sent, ``gradients (m, d)`` that they stand for, at
    ``model (d,)``; ``senders``: each row's client, where the observer knows it.
    """

    round: int
    values: Tensor
    gradients: Tensor
    model: Tensor
    senders: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """``dots``: (m, n), <upload's gradient, candidate's gradient>; ``rows``: (m,) and ``candidates``: (n,), their
    lengths; double precision. Higher means that the upload descends along the candidate.
    """

    dots: Tensor
    rows: Tensor
    candidates: Tensor

    @property
    def cosines(self) -> Tensor:
        """(m, n); 0 where a length is 0."""
        return self.dots / (self.rows.unsqueeze(1) * self.candidates).clamp_min(1e-30)


def rounds_of(view: View) -> Iterator[RoundRows]:
    """What the view holds of each round as rows: the uploads or reports that came, or the one sum of all; rounds to
    which nobody came are left out.

    Who sees models only sees what moved each to the next: the sum, and the noise of both where broadcasts are noised.

    Raises:
        ValueError: if the view holds no uploads, sums or models, or no names where senders are seen.
        Undefined: if the uploads are masked words of a secure sum, or there is one model only.
    """
    if view.observer.rank < GLOBAL_MODELS.rank:
        raise Undefined(f"{view.observer.phrase} sees no round: there is nothing to score")
    models = [seen.broadcast for seen in view.rounds] + [view.final_model]
    for seen, after in zip(view.rounds, models[1:], strict=True):
        if seen.broadcast is None or after is None:
            raise ValueError(f"view of round {seen.round} must hold the model, got none")
        if view.observer.rank >= SHUFFLED.rank:
            rows = _rows(seen, seen.broadcast[0], view)
        else:
            rows = _sum(seen, seen.broadcast[0], after[0], view)
        if rows.senders:
            yield rows


def _rows(seen: RoundView, model: Tensor, view: View) -> RoundRows:
    reports = seen.reports
    if reports is None:
        raise ValueError(f"view of round {seen.round} must hold uploads, got none")
    if reports.senders is None:
        raise ValueError("the view does not name senders: this attack needs the server that sees every upload")
    check_unmasked(reports)
    came = reports.present[0]
    senders = tuple(sender for sender, here in zip(reports.senders, came.tolist(), strict=True) if here)
    return _as_gradients(seen, reports.values[0, came].to(model.dtype), model, senders, view)


def _sum(seen: RoundView, model: Tensor, after: Tensor, view: View) -> RoundRows:
    moved = view.plan.algorithm.aggregate_between(model, after) if seen.aggregate is None else seen.aggregate[0]
    if seen.aggregate is None and view.observer.rank == AGGREGATE.rank:
        raise ValueError(f"view of round {seen.round} must hold the aggregate, got none")
    return _as_gradients(seen, moved.unsqueeze(0), model, (0,), view)


def _as_gradients(seen: RoundView, values: Tensor, model: Tensor, senders: tuple[int, ...], view: View) -> RoundRows:
    """An update is what the server adds: the algorithm turns it into a gradient."""
    gradients = view.plan.algorithm.gradient(values)
    return RoundRows(round=seen.round, values=values, gradients=gradients, model=model, senders=senders)


def candidate_gradients(
    network: Network, model: Tensor, shown: Candidates | OwnerCandidates
) -> Iterator[tuple[slice, Tensor]]:
    """The candidates' gradients at ``model (d,)``, chunk by chunk: which, ``(m, d)``.

    Raises:
        Undefined: for a model whose samples have no gradients of their own.
    """
    if network.mixes:
        raise Undefined(f"no candidate's part of an upload is defined: {network.mixture}")
    for start in range(0, len(shown.labels), CHUNK):
        which = slice(start, start + CHUNK)
        images, labels = shown.images[which].unsqueeze(0), shown.labels[which].unsqueeze(0)
        yield which, network.sample_gradients(model.unsqueeze(0), images, labels)[0]


def align(rows: RoundRows, knowledge: Knowledge, shown: Candidates) -> Alignment:
    """All rows of one round with all candidates: each candidate's gradient is taken once, whoever is asked about."""
    chunks = [
        (gradients @ rows.gradients.T, torch.linalg.vector_norm(gradients, dim=1))
        for _, gradients in candidate_gradients(knowledge.network, rows.model, shown)
    ]
    return Alignment(
        dots=torch.cat([dots for dots, _ in chunks]).T.double(),
        rows=torch.linalg.vector_norm(rows.gradients, dim=1).double(),
        candidates=torch.cat([lengths for _, lengths in chunks]).double(),
    )
