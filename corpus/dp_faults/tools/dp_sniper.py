"""The method of DP-Sniper (Bichsel et al. 2021): a classifier whose most certain outputs are the event; own code.

A logistic regression learns to tell the outputs of two neighbours apart. The event are the outputs whose log-odds are
highest, so many that the event has a probability of about ``RARE`` on the other neighbour; the event is learnt on half
of the runs, and its two probabilities are bounded on the other half. The paper is about delta 0; where a claim has
a delta, it is subtracted from the first probability.
"""

import numpy as np

from dp_faults import ALPHA, Subject, Verdict, outputs, trials
from dp_faults.binomial import epsilon_low
from dp_faults.scores import log_odds

NAME = "DP-Sniper (method)"
PURPOSE = "a practical black-box method that automatically finds violations of differential privacy"
KINDS = ("functions", "randomisers", "shufflers", "secure_sums", "teachers", "vertical", "accountants", "loops")
RARE = 0.01


def judge(subject: Subject, seed: int) -> Verdict:
    claim, number = subject.program.claim, trials(subject)
    first, second = outputs(subject, seed, number)
    scores = log_odds(first, second)
    best = max((_bound(scores, sign, claim.delta, learn=True), sign) for sign in (1, -1))
    words = f"{number} runs on each neighbour"
    return Verdict.of_bound(_bound(scores, best[1], claim.delta, learn=False), claim, words)


def _bound(scores: tuple[np.ndarray, np.ndarray], sign: int, delta: float, *, learn: bool) -> float:
    """``sign``: 1 for an event that is likelier on the second neighbour, -1 on the first."""
    under, over = (sign * one for one in scores[::sign])
    half = len(under) // 2
    learnt, counted = slice(0, half), slice(0, half) if learn else slice(half, None)
    cut = np.quantile(under[learnt], 1 - RARE, method="higher")
    # At a tie with the cut the event is taken above it, or from it on, whichever has the nearer probability.
    above, from_it = ((under[learnt] > cut).mean(), (under[learnt] >= cut).mean())
    cut = np.nextafter(cut, np.inf) if above > 0 and RARE - above < from_it - RARE else cut
    counts = int((over[counted] >= cut).sum()), int((under[counted] >= cut).sum())
    return epsilon_low(counts, (len(over[counted]), len(under[counted])), delta=delta, alpha=ALPHA)
