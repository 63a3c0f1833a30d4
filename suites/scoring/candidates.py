"""Which of an attack's answers about candidates count, and what was right."""

from dataclasses import dataclass, replace

import numpy as np

from ...audit.evidence import CandidateScores, MembershipScores
from ...fl.probe import CandidateProbe


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The scores that count, the truth of each and the candidate that it is about: ``(m,)`` each.

    Scores of one candidate stand and fall together: it is one cluster.
    """

    scores: CandidateScores
    member: np.ndarray
    candidate: np.ndarray

    @property
    def sides(self) -> MembershipScores:
        """Members' scores and the others'."""
        return self.scores.against(self.member)


def answers(evidence: CandidateScores, probe: CandidateProbe) -> Answers:
    """Of one score a candidate ``(n,)`` all; of one a client and candidate ``(clients * n,)``, client by client, those
    of a client's own samples and of outsiders at every client. Another client's sample is neither: who holds it is what
    is asked, but the model that this client saw was trained on it.

    Raises:
        ValueError: if there are neither so many.
    """
    count, clients = len(probe.holder), np.array(probe.shown.clients)
    if len(evidence.values) == count:
        return Answers(scores=evidence, member=probe.member, candidate=np.arange(count))
    if len(evidence.values) != count * len(clients):
        raise ValueError(
            f"scores must be {count}, one a candidate, or {count * len(clients)}, one a client and candidate, "
            f"got {len(evidence.values)}"
        )
    own = (probe.holder == clients[:, None]).reshape(-1)
    asked = own | np.tile(~probe.member, len(clients))
    scores = replace(evidence, values=evidence.values[asked])
    return Answers(scores=scores, member=own[asked], candidate=np.tile(np.arange(count), len(clients))[asked])
