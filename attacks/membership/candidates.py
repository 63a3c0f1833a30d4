"""Base class of attacks that infer whether candidate samples were used in training, and what uploads reveal about
candidates.

That is the inner product of each candidate's gradient with each upload of a round, and the candidate's loss under the
model that the server would have if it aggregated one client's upload alone.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import CandidateScores
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED
from ...fl.candidates import Candidates, OwnerCandidates, PlantedCandidates, plant_candidates
from ...fl.fields import Count, IndexOrAll
from ...fl.models.network import Network
from ...fl.objective import TASKS
from ...fl.recorder import RoundView, View
from ...fl.task import Task
from ..attack import Attack, Knowledge, Undefined, clustered_setting
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


def client_model_losses(rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> Tensor:
    """Compute the cross-entropy of each candidate under each client's model, shape ``(m, n)``, in double precision."""
    models = view.plan.algorithm.combine(rows.model, rows.values)
    with torch.no_grad():
        return torch.stack([knowledge.network.losses(one, shown.images, shown.labels) for one in models]).double()


def plant_samples(task: Task, count: int, client: int | Literal["all"], rng: np.random.Generator) -> PlantedCandidates:
    """Draw ``count`` samples of one client, or of all clients, and as many comparable samples that no client trains on.

    Raises:
        Undefined: under the partition by_owner, which leaves no comparable ones.
    """
    # Under by_owner an outsider differs from members by its owner alone, so scores would measure that difference.
    if task.exchangeable == "none":
        raise Undefined(
            "under the partition by_owner no sample outside of training is comparable to a client's samples; "
            "use the attack writer_membership"
        )
    clients = range(task.clients) if client == "all" else (client,)
    return plant_candidates(task, count=count, clients=clients, rng=rng)


@dataclass(frozen=True, kw_only=True)
class MembershipAttack(Attack, ABC):
    """A base class of attacks that score candidates: samples of the audited clients, and comparable samples that no
    client trained on.

    Args:
        count: candidates per side, for each client.
        client: the client whose samples are in question, or ``"all"``.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS
    count: Count = 40
    client: IndexOrAll = 0

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedCandidates:
        return plant_samples(task, self.count, self.client, rng)

    def shown(self, knowledge: Knowledge) -> Candidates:
        """Return the candidate samples that the attack scores; raise ValueError if none were chosen before training."""
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError(f"{type(self).__name__} needs candidates, which must be planted before training")
        return knowledge.candidates

    def evidence(
        self, scores: np.ndarray, view: View, history: Sequence[tuple[int, np.ndarray]] = ()
    ) -> CandidateScores:
        """Return the attack's result: the membership ``scores`` from one run, with the unit, adjacency, observer and
        rounds to which they apply.

        Its candidates share every noise draw and are members by a fixed split, not by one coin each: the evidence is
        clustered and judges no claim.

        ``scores``: (n,), where no client is identified; or (clients, n), one for each client in question. ``history``:
        the same scores after so many rounds.
        """
        stood = tuple((rounds, values.reshape(-1)) for rounds, values in history)
        setting = clustered_setting(view, Unit.SAMPLE, Adjacency.ADD_REMOVE)
        return CandidateScores(scores.reshape(-1), setting, history=stood)
