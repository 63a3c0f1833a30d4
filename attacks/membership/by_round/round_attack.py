"""Round attack: base of attacks that compute a statistic of each upload and each candidate in every round."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....audit.evidence import CandidateScores
from ....audit.observer import SHUFFLED, UPLOADS, Observer
from ....fl.probe import Candidates
from ....fl.view import View
from ...attack import Knowledge, Undefined
from ...reduced_view import reduce_view
from ..alignment import RoundRows, rounds_of
from ..candidate_attack import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class RoundAttack(MembershipAttack, ABC):
    """A base class of attacks on one round's vectors: uploads of known clients, of unknown senders (a multiset), or the
    sum of all clients.

    All rounds are used: choosing the best round would need the truth.
    """

    observer: ClassVar[Observer] = UPLOADS
    handles_reduced_views: ClassVar[bool] = True

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
                history.append((rows.round + 1, self.total(sums.copy(), rounds.copy())))
        if not rounds.all():
            others = f" and {self.least(view) - 1} others" if self.least(view) > 1 else ""
            raise Undefined(f"in no round did the audited client{others} take part, so there is nothing to score")
        return self.evidence(self.total(sums, rounds), view, history)

    def least(self, view: View) -> int:
        """Return the smallest number of vectors that a round must have."""
        return 1

    def by_client(self, view: View) -> bool:
        """Return whether there is one score per client, which needs uploads with known senders."""
        return view.observer.rank >= UPLOADS.rank

    def scores_of(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute the scores of one round: shape (audited clients that took part, n), or (1, n) if
        senders are unknown.
        """
        table = self.table(rows, view, knowledge, shown)
        if view.observer.rank >= UPLOADS.rank:
            return table[[rows.senders.index(client) for client in shown.clients if client in rows.senders]]
        return self.of_multiset(table) if view.observer.rank == SHUFFLED.rank else table

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute the statistic of every vector and candidate, shape (m, n), in double precision; higher means that the
        candidate took part.
        """
        raise TypeError(f"{type(self).__name__} does not define table(rows, view, knowledge, shown)")

    def of_multiset(self, table: np.ndarray) -> np.ndarray:
        """Combine a table (m, n) of uploads whose senders are unknown into (1, n): return the highest value, because
        any upload may be the client's.
        """
        return np.asarray(table.max(0, keepdims=True), dtype=np.float64)

    def total(self, sums: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        """Compute the scores from sums over rounds ``(c, n)`` and from the number of rounds of each client ``(c,)``;
        this base class returns the sums.
        """
        return sums
