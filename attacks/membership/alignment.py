"""Computes inner products of every candidate's gradient with every upload of a round."""

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

# Gradients of so many candidates are held at once: larger temporaries cost more in page faults than in arithmetic.
CHUNK = 100


@dataclass(frozen=True, kw_only=True)
class RoundRows:
    """The vectors that the observer receives in one round: one vector per client, one per anonymous report, or only the
    sum of all.

    ``values (m, d)``: as sent; ``gradients (m, d)``: which the values stand for, at ``model (d,)``; ``senders``: each
    row's client, where the observer knows it.
    """

    round: int
    values: Tensor
    gradients: Tensor
    model: Tensor
    senders: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The inner products of uploads' gradients with candidates' gradients, in double precision.

    ``dots``: (m, n), higher means that the upload descends along the candidate's gradient; ``rows`` (m,) and
    ``candidates`` (n,): the gradients' lengths.
    """

    dots: Tensor
    rows: Tensor
    candidates: Tensor

    @property
    def cosines(self) -> Tensor:
        """Return the cosines between m uploads' and n candidates' gradients, shape ``(m, n)``; 0 if a gradient
        is zero.
        """
        return self.dots / (self.rows.unsqueeze(1) * self.candidates).clamp_min(1e-30)


def rounds_of(view: View) -> Iterator[RoundRows]:
    """Yield the vectors that the observer receives in each round: the uploads or reports that arrived, or their sum;
    rounds in which none arrived are left out.

    For an observer of models only, the row is the change from each model to the next: the sum, with the noise of both
    where broadcasts have noise.

    Raises:
        ValueError: if the view lacks uploads, sums or models, or senders that the observer should see.
        Undefined: if the uploads are masked words of a secure sum, or the observer sees only the final model.
    """
    if view.observer.rank < GLOBAL_MODELS.rank:
        raise Undefined(f"{view.observer.phrase} does not observe rounds, so there is nothing to score")
    models = [seen.broadcast for seen in view.rounds] + [view.final_model]
    for seen, after in zip(view.rounds, models[1:], strict=True):
        if seen.broadcast is None or after is None:
            raise ValueError(f"view of round {seen.round} must hold the model, got none")
        if view.observer.rank >= SHUFFLED.rank:
            rows = _rows(seen, seen.broadcast[0], view)
        else:
            rows = _sum(seen, seen.broadcast[0], after[0], view)
        # A round to which no client came has nothing to align.
        if rows.senders:
            yield rows


def _rows(seen: RoundView, model: Tensor, view: View) -> RoundRows:
    reports = seen.reports
    if reports is None:
        raise ValueError(f"view of round {seen.round} must hold uploads, got none")
    if reports.senders is None:
        raise ValueError(
            "the view does not name the senders, but this attack needs a server that observes individual updates"
        )
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
    """Convert updates, which are what the server adds, to gradients."""
    gradients = view.plan.algorithm.gradient(values)
    return RoundRows(round=seen.round, values=values, gradients=gradients, model=model, senders=senders)


def candidate_gradients(
    network: Network, model: Tensor, shown: Candidates | OwnerCandidates
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the candidates' gradients ``(m, d)`` at ``model (d,)`` in chunks, each with the slice of candidates that it
    covers.

    Raises:
        Undefined: for a model whose samples have no gradients of their own.
    """
    # Under batch norm a sample changes the gradients of the others in its lot.
    if network.mixes:
        raise Undefined(f"a candidate's contribution to an upload is not defined: {network.mixture}")
    for start in range(0, len(shown.labels), CHUNK):
        which = slice(start, start + CHUNK)
        images, labels = shown.images[which].unsqueeze(0), shown.labels[which].unsqueeze(0)
        yield which, network.sample_gradients(model.unsqueeze(0), images, labels)[0]


def align(rows: RoundRows, knowledge: Knowledge, shown: Candidates) -> Alignment:
    """Compute the inner products of one round's uploads with the gradients of all candidates.

    Each candidate's gradient is computed once for all clients.
    """
    chunks = [
        (gradients @ rows.gradients.T, torch.linalg.vector_norm(gradients, dim=1))
        for _, gradients in candidate_gradients(knowledge.network, rows.model, shown)
    ]
    return Alignment(
        dots=torch.cat([dots for dots, _ in chunks]).T.double(),
        rows=torch.linalg.vector_norm(rows.gradients, dim=1).double(),
        candidates=torch.cat([lengths for _, lengths in chunks]).double(),
    )
