"""Which of an attack's answers about candidates count, and what was right."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

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


def area_interval(found: Answers, level: float = 0.95) -> tuple[float, float]:
    """Interval of the area under the curve, over the candidates of one run, those of one candidate together.

    Obuchowski (1997): each score's share in the area, as in DeLong et al. (1988), summed over its cluster. Given what
    the attack saw, candidates of one distribution are independent, so it holds for this run; other runs differ by more.

    Raises:
        ValueError: if there are not two candidates on either side.
    """
    sides = found.sides
    members, others = found.candidate[found.member], found.candidate[~found.member]
    if min(len(set(members)), len(set(others))) < 2:
        raise ValueError(f"an interval needs two candidates a side, got {len(set(members))} and {len(set(others))}")
    ordered = [np.sort(sides.nonmember), np.sort(sides.member)]
    above = _below(ordered[0], sides.member)
    below = 1 - _below(ordered[1], sides.nonmember)
    value, numbers = float(above.mean()), int(found.candidate.max()) + 1
    spread = np.bincount(members, (above - value) / len(above), numbers)
    spread += np.bincount(others, (below - value) / len(below), numbers)
    variance = sum(
        len(set(side)) / (len(set(side)) - 1) * (spread[np.unique(side)] ** 2).sum() for side in (members, others)
    )
    half = float(norm.ppf(0.5 + level / 2)) * float(variance) ** 0.5
    return max(0.0, value - half), min(1.0, value + half)


def _below(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Share of ``ordered`` that lies below each value, ties counting half."""
    ranks = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(ranks / (2 * len(ordered)), dtype=np.float64)
