"""The auditor of opake: a bound from the scores of canaries that fair coins included.

Each run is one canary: a coin chose its neighbour. Its score is the log-odds of a logistic regression on its release,
learnt from other runs, and its threshold is 0, fixed before (``threshold=``): the default threshold is chosen on the
scores that are tested, and then the bound has no level.
"""

import numpy as np
from opake.auditing import canary_scores, one_run
from opake.auditing.types import CoinFlip

from dp_faults import ALPHA, Subject, Verdict, outputs, trials
from dp_faults.scores import log_odds

NAME = "opake-auditing"
PURPOSE = "empirical privacy auditing: canary-based with pluggable attacks"
KINDS = ("loops", "opacus", "flower", "jax")


def judge(subject: Subject, seed: int) -> Verdict:
    number, claim = trials(subject), subject.program.claim
    first, second = (one[number // 2 :] for one in log_odds(*outputs(subject, seed, number)))
    coins = np.random.default_rng(seed).random(len(first)) < 0.5
    scores, places = np.where(coins, second, first), np.arange(len(first))
    flips = CoinFlip(len(first), places, coins, places[coins], places[~coins], len(first))
    estimate = one_run(canary_scores(scores, canary_indices=places), coin_flip=flips)
    bound = estimate.eps_delta().epsilon_at(delta=claim.delta, significance=ALPHA, threshold=0.0)
    return Verdict.of_bound(bound, claim, f"{len(first)} runs")
