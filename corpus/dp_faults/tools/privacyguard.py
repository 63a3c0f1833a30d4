"""PrivacyGuard: the empirical epsilon of scores of members and non-members.

The score of a run is the log-odds of a logistic regression on its release, learnt from the other half of the runs. The
empirical epsilon is ``eps_cp`` of ``AnalysisNode``, "computed using the Clopper-Pearson CI method".
"""

import numpy as np
import pandas as pd
from privacy_guard.analysis.mia.aggregate_analysis_input import AggregateAnalysisInput, AggregationType
from privacy_guard.analysis.mia.analysis_node import AnalysisNode

from dp_faults import Subject, Verdict, outputs, trials
from dp_faults.scores import log_odds

NAME = "PrivacyGuard"
PURPOSE = "privacy analysis (e.g., Membership Inference, Text Inclusion) of models"
KINDS = ("loops", "opacus", "flower", "jax")


def judge(subject: Subject, seed: int) -> Verdict:
    number, claim = trials(subject, most=2**13), subject.program.claim
    first, second = (one[number // 2 :] for one in log_odds(*outputs(subject, seed, number)))
    sides = [pd.DataFrame({"user_id": np.arange(len(x)), "score": x}) for x in (second, first)]
    users = AggregateAnalysisInput(AggregationType.NONE, *sides, "user_id")
    settings = {"delta": claim.delta, "n_users_for_eval": len(first), "num_bootstrap_resampling_times": 2}
    return Verdict.of_bound(
        AnalysisNode(users, **settings).run_analysis().eps_cp, claim, f"{number} runs on each neighbour"
    )
