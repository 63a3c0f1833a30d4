"""The auditor of jax_privacy: bounds from scores of canaries that took part and of canaries that did not.

The score of a run is the log-odds of a logistic regression on its release, learnt from the other half of the runs. The
bound is ``epsilon_clopper_pearson`` with the default threshold strategy, in both directions (``one_sided=False``).
"""

from jax_privacy.auditing import CanaryScoreAuditor

from dp_faults import ALPHA, Subject, Verdict, outputs, trials
from dp_faults.scores import log_odds

NAME = "jax_privacy auditing"
PURPOSE = "estimating the privacy of a model, based on attack scores of held-in and held-out canaries"
KINDS = ("loops", "opacus", "flower", "jax")


def judge(subject: Subject, seed: int) -> Verdict:
    number = trials(subject, most=2**14)
    first, second = (one[number // 2 :] for one in log_odds(*outputs(subject, seed, number)))
    claim = subject.program.claim
    bound = CanaryScoreAuditor(second, first).epsilon_clopper_pearson(ALPHA, claim.delta, one_sided=False)
    return Verdict.of_bound(bound, claim, f"{number} runs on each neighbour")
