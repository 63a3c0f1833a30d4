"""Select which scores of a membership attack count, and determine whether each scored candidate was a member."""

from dataclasses import dataclass, replace

import numpy as np

from ...audit.evidence import CandidateScores
from ...audit.metrics import ScoresByRun
from ...fl.probe import CandidateProbe


@dataclass(frozen=True, kw_only=True)
class CountedScores:
    """A set of membership scores as three arrays ``(m,)``: the scores, whether each scored candidate was a member, and
    the candidate's index.

    Scores of the same candidate are dependent: they form one cluster.
    """

    scores: CandidateScores
    member: np.ndarray
    candidate: np.ndarray

    @property
    def given_the_run(self) -> ScoresByRun:
        """The membership scores grouped by candidate, for confidence intervals that hold for this run alone.

        Candidates are then independent, so that an interval over them holds for this run. The variation between runs
        is larger.
        """
        return self._sides(self.scores.values)

    @property
    def round_by_round(self) -> list[tuple[int, ScoresByRun]]:
        """The membership scores after each number of rounds; empty if the attack gives no scores by round."""
        return [(rounds, self._sides(values)) for rounds, values in self.scores.history]

    def _sides(self, values: np.ndarray) -> ScoresByRun:
        member, candidate = self.member, self.candidate
        return ScoresByRun.of(values[member], values[~member], candidate[member], candidate[~member])


def all_scores(evidence: CandidateScores, member: np.ndarray) -> CountedScores:
    """Return all scores of an attack that gives one score per candidate, and whether each candidate was a member."""
    return CountedScores(scores=evidence, member=member, candidate=np.arange(len(member)))


def counted_scores(evidence: CandidateScores, probe: CandidateProbe) -> CountedScores:
    """Return the scores that count, and whether each scored candidate was a member. If an attack scores every candidate
    for every client, only the scores of a client's own samples (members) and of outsiders (non-members) count.

    An attack may return one score per candidate, ``(n,)``: then all count. Or it returns one score per client and
    candidate, ``(clients * n,)``, client by client: then those of the client's own samples (members) and of the
    outsiders assigned to it (non-members) count.
    Another client's sample is neither: it is not in this client's lot, but the broadcast model was trained on it.

    Raises:
        ValueError: for another number of scores.
    """
    count, clients = len(probe.holder), np.array(probe.shown.clients)
    if len(evidence.values) == count:
        return all_scores(evidence, probe.member)
    if len(evidence.values) != count * len(clients):
        raise ValueError(
            f"the attack must return {count} scores, one per candidate, or {count * len(clients)}, "
            f"one per client and candidate, "
            f"got {len(evidence.values)}"
        )
    # (clients, n), flattened in the order of the scores: client by client.
    own = (probe.holder == clients[:, None]).reshape(-1)
    if probe.stands_for is None:
        # Without an assignment each outsider is a non-member of every client.
        outside = np.tile(~probe.member, len(clients))
    else:
        outside = (probe.stands_for == clients[:, None]).reshape(-1)
    counted = own | outside
    runs = None if evidence.runs is None else evidence.runs[counted]
    history = tuple((rounds, values[counted]) for rounds, values in evidence.history)
    # The same selection for every array of the evidence, so that runs and rounds stay aligned with the scores.
    scores = replace(evidence, values=evidence.values[counted], runs=runs, history=history)
    return CountedScores(scores=scores, member=own[counted], candidate=np.tile(np.arange(count), len(clients))[counted])
