"""Which of an attack's answers about candidates count, and what was right."""

from dataclasses import dataclass, replace

import numpy as np

from ...audit.evidence import CandidateScores
from ...audit.metrics.scores_by_run import ScoresByRun
from ...fl.probe import CandidateProbe


@dataclass(frozen=True, kw_only=True)
class CountedScores:
    """The scores that count, the truth of each and the candidate that it is about: ``(m,)`` each.

    Scores of one candidate stand and fall together: it is one cluster.
    """

    scores: CandidateScores
    member: np.ndarray
    candidate: np.ndarray

    @property
    def given_the_run(self) -> ScoresByRun:
        """As if what the attack saw were given: then candidates are independent, and an interval over them holds for
        this run. Other runs differ by more.
        """
        return self._sides(self.scores.values)

    @property
    def round_by_round(self) -> list[tuple[int, ScoresByRun]]:
        """The same after so many rounds, where the attack says how its scores stood."""
        return [(rounds, self._sides(values)) for rounds, values in self.scores.history]

    def _sides(self, values: np.ndarray) -> ScoresByRun:
        member, candidate = self.member, self.candidate
        return ScoresByRun.of(values[member], values[~member], candidate[member], candidate[~member])


def all_scores(evidence: CandidateScores, member: np.ndarray) -> CountedScores:
    """One score a candidate: all count."""
    return CountedScores(scores=evidence, member=member, candidate=np.arange(len(member)))


def counted_scores(evidence: CandidateScores, probe: CandidateProbe) -> CountedScores:
    """Of one score a candidate ``(n,)`` all; of one a client and candidate ``(clients * n,)``, client by client, those
    of a client's own samples and of the outsiders that stand for it, which may be all of them. Another client's sample
    is neither: who holds it is what is asked, but the model that this client saw was trained on it.

    Raises:
        ValueError: if there are neither so many.
    """
    count, clients = len(probe.holder), np.array(probe.shown.clients)
    if len(evidence.values) == count:
        return all_scores(evidence, probe.member)
    if len(evidence.values) != count * len(clients):
        raise ValueError(
            f"scores must be {count}, one a candidate, or {count * len(clients)}, one a client and candidate, "
            f"got {len(evidence.values)}"
        )
    own = (probe.holder == clients[:, None]).reshape(-1)
    if probe.stands_for is None:
        outside = np.tile(~probe.member, len(clients))
    else:
        outside = (probe.stands_for == clients[:, None]).reshape(-1)
    asked = own | outside
    runs = None if evidence.runs is None else evidence.runs[asked]
    history = tuple((rounds, values[asked]) for rounds, values in evidence.history)
    scores = replace(evidence, values=evidence.values[asked], runs=runs, history=history)
    return CountedScores(scores=scores, member=own[asked], candidate=np.tile(np.arange(count), len(clients))[asked])
