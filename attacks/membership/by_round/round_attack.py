"""Base class of attacks that compute a statistic of each upload and each candidate in every round."""

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
    """A base class of attacks that score candidates in each round from the uploads (with known or unknown senders) or
    from the sum of the uploads.

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
            others = f" together with {self.least(view) - 1} others" if self.least(view) > 1 else ""
            raise Undefined(f"the audited client took part in no round{others}, so there is nothing to score")
        return self.evidence(self.total(sums, rounds), view, history)

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

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute the statistic of m uploads and n candidates, shape ``(m, n)``; a higher value means that the upload's
        training data more likely contain the candidate.
        """
        raise TypeError(
            f"every RoundAttack must define table(rows, view, knowledge, shown), but {type(self).__name__} does not"
        )

    def of_multiset(self, table: np.ndarray) -> np.ndarray:
        """Return the maximum ``(1, n)`` of the statistics ``(m, n)`` over uploads from unknown senders, because any
        upload may be the audited client's.
        """
        return np.asarray(table.max(0, keepdims=True), dtype=np.float64)

    def total(self, sums: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        """Compute the final scores of n candidates for c clients from the scores summed over rounds ``(c, n)`` and each
        client's number of rounds ``(c,)``; by default return the sums.
        """
        return sums
