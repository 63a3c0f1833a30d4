"""Base classes of attacks that compute a statistic of candidates in every round, of each upload or of the global model.

The target client's statistic may be compared with those of clients that did not train on the candidate.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr
from torch import Tensor

from ...audit.evidence import CandidateScores
from ...audit.observer import GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..uploads import reduce_view
from .candidates import MembershipAttack, RoundRows, rounds_of


@dataclass(frozen=True, kw_only=True)
class RoundAttack(MembershipAttack, ABC):
    """A base class of attacks that score candidates in each round from the uploads (with known or unknown senders) or
    from the sum of the uploads.

    All rounds are used: choosing the best round would need the truth.
    """

    observer: ClassVar[Observer] = UPLOADS
    handles_reduced_views: ClassVar[bool] = True
    averaged: ClassVar[bool] = False
    """Whether a score is the mean over the rounds, in place of the sum."""

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = self.shown(knowledge)
        if view.observer.rank == SHUFFLED.rank:
            reduced = reduce_view(view, knowledge)
            view, knowledge = reduced.view, reduced.knowledge
        named = view.observer.rank >= UPLOADS.rank
        sums = np.zeros((len(shown.clients) if self.by_client(view) else 1, len(shown.labels)))
        rounds = np.zeros(len(sums))
        history: list[tuple[int, np.ndarray]] = []
        for rows in rounds_of(view):
            if len(rows.senders) < self.least(view):
                continue
            came = np.isin(shown.clients, rows.senders) if named else np.ones(len(sums), dtype=np.bool_)
            if came.any():
                sums[came] += self.scores_of(rows, view, knowledge, shown)
                rounds += came
            # A curve starts once every client in question has a score.
            if rows.round + 1 in view.plan.marks and rounds.all():
                history.append((rows.round + 1, self._total(sums, rounds)))
        if not rounds.all():
            others = f" together with {self.least(view) - 1} others" if self.least(view) > 1 else ""
            raise Undefined(f"the audited client took part in no round{others}, so there is nothing to score")
        return self.evidence(self._total(sums, rounds), view, history)

    def least(self, view: View) -> int:
        """Return the smallest number of uploads in a round with which the attack can score candidates."""
        return 1

    def by_client(self, view: View) -> bool:
        """Return whether the attack gives one score per client, which needs uploads with known senders."""
        return view.observer.rank >= UPLOADS.rank

    def scores_of(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute the scores of n candidates in one round, ``(clients, n)`` for the audited clients that took part, or
        ``(1, n)`` if senders are unknown.
        """
        table = self.table(rows, view, knowledge, shown)
        if view.observer.rank >= UPLOADS.rank:
            return table[[rows.senders.index(client) for client in shown.clients if client in rows.senders]]
        return self.of_multiset(table) if view.observer.rank == SHUFFLED.rank else table

    @abstractmethod
    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute the statistic of m uploads and n candidates, shape ``(m, n)``; a higher value means that the upload's
        training data more likely contain the candidate.
        """

    def of_multiset(self, table: np.ndarray) -> np.ndarray:
        """Return the maximum ``(1, n)`` of the statistics ``(m, n)`` over uploads from unknown senders, because any
        upload may be the audited client's.
        """
        return np.asarray(table.max(0, keepdims=True), dtype=np.float64)

    def _total(self, sums: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        """The scores ``(c, n)`` from their sums over rounds and each client's number of rounds ``(c,)``."""
        return np.asarray(sums / rounds[:, None], dtype=np.float64) if self.averaged else sums.copy()


@dataclass(frozen=True, kw_only=True)
class SeriesAttack(MembershipAttack, ABC):
    """A base class of attacks whose score is the mean of a statistic over the global models of all rounds, without the
    initial model.

    All clients receive the same models, so there is one score per candidate, for any client in question.
    """

    observer: ClassVar[Observer] = GLOBAL_MODELS

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = self.shown(knowledge)
        if any(seen.broadcast is None for seen in view.rounds):
            raise ValueError("the view must hold the model of every round, got a round without one")
        # Without the first model: it is drawn before any client uses a sample.
        models = [seen.broadcast[0] for seen in view.rounds[1:] if seen.broadcast is not None] + [view.final_model[0]]
        values = [self.statistic(model, knowledge, shown) for model in models]
        history = [(rounds, np.mean(values[:rounds], axis=0)) for rounds in view.plan.marks]
        return self.evidence(np.mean(values, axis=0), view, history)

    @abstractmethod
    def statistic(self, model: Tensor, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute a statistic of all n candidates at one model ``(d,)``, shape ``(n,)``; a higher value means
        a member.
        """


LEAST = 3
"""Number of clients that a round needs: the target, and two others to measure their scatter."""


def compare_with_other_clients(table: np.ndarray) -> np.ndarray:
    """Standardise each client's statistic of a candidate by the other clients' mean and deviation, and return the
    normal CDF of the result.

    ``table``: (m, n), the statistic of m clients and n candidates; the result is ``Phi(z)``, (m, n), in [0, 1].

    z is the client's distance from the mean of the **other** clients in their standard deviations (FedMIA, Zhu et al.
    2024), so that no client is part of its own null distribution. If the others do not vary, a tie with them is 1/2.
    Raises ValueError for fewer than three clients.
    """
    # Callers average these values over rounds, not their logarithms: one round of similar others would dominate.
    if len(table) < LEAST:
        raise ValueError(f"a comparison with other clients needs at least {LEAST} clients, got {len(table)}")
    others = len(table) - 1
    centred = table - table.mean(0)
    # Of centred numbers: sums of squares of a loss far from zero would lose digits.
    mean = (centred.sum(0) - centred) / others
    squares = ((centred**2).sum(0) - centred**2) - others * mean**2
    spread = np.sqrt(np.maximum(squares, 0) / (others - 1))
    scale = np.maximum(spread, 1e-9 * np.abs(table).max(0) + 1e-300)
    return np.asarray(ndtr((centred - mean) / scale), dtype=np.float64)
