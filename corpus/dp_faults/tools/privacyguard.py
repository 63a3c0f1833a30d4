"""PrivacyGuard: the empirical epsilon of scores of members and non-members.

The score of a run is the log-odds of a logistic regression on its release, learnt from the other half of the runs. The
empirical epsilon is ``eps_cp`` of ``AnalysisNode``, "computed using the Clopper-Pearson CI method".
"""

from importlib import import_module

import numpy as np

from dp_faults import Subject, Verdict, outputs, trials
from dp_faults.scores import log_odds

NAME = "PrivacyGuard"
PURPOSE = "privacy analysis (e.g., Membership Inference, Text Inclusion) of models"
KINDS = ("loops", "opacus", "flower", "jax")


def judge(subject: Subject, seed: int) -> Verdict:
    pandas, mia = import_module("pandas"), "privacy_guard.analysis.mia"
    node = import_module(f"{mia}.analysis_node").AnalysisNode
    given = import_module(f"{mia}.aggregate_analysis_input")
    number, claim = trials(subject, most=2**13), subject.program.claim
    first, second = (one[number // 2 :] for one in log_odds(*outputs(subject, seed, number)))
    sides = [pandas.DataFrame({"user_id": np.arange(len(x)), "score": x}) for x in (second, first)]
    users = given.AggregateAnalysisInput(given.AggregationType.NONE, *sides, "user_id")
    settings = {"delta": claim.delta, "n_users_for_eval": len(first), "num_bootstrap_resampling_times": 2}
    return Verdict.of_bound(node(users, **settings).run_analysis().eps_cp, claim, f"{number} runs on each neighbour")
