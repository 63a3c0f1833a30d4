"""Scores of a membership attack over independent replicas are evidence for an audit; scores of one run are not."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import CandidateScores, MembershipScores
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import FINAL_MODEL
from fedassay.audit.threshold import FixedThreshold, SplitThreshold
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import lot_sum
from fedassay.fl.probe import Candidates
from fedassay.fl.recorder import RoundView, View
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

TRIALS, ROUNDS, ALPHA = 100, 2, 0.01


@dataclass(frozen=True, kw_only=True)
class NoClip(DPSGDProtection):
    """Planted bug: the clip is forgotten."""

    def total(self, gradients, present):
        return lot_sum(gradients, present)


def verdict(claim, scores, threshold=None):
    """At a ratio of 1 by default: fixed before any score is seen."""
    policy = threshold or FixedThreshold(0.0)
    measured = clopper_pearson(
        scores, delta=claim.delta, alpha=ALPHA, threshold=policy, curve=claim.curve, epsilon=claim.epsilon
    )
    return judge(claim, measured)


@pytest.fixture(scope="module")
def final_models(toy_task, toy_plan, knowledge_of):
    """(correct or not) -> dp_sgd's claim, and the loss attack's scores of one sample in runs with it and without."""

    @cache
    def gather(correct, runs=60):
        task = toy_task((4, 3))
        plan = toy_plan(task, rounds=6)
        prepared = DPSGD(epsilon=1.0, delta=1e-5, clip_norm=0.1).prepare(plan)
        running = prepared.protection if correct else NoClip(clip_norm=0.1, noise_multiplier=0.01)
        candidate, attack = int(task.parts[0][0]), LossThreshold(count=1)
        shown = Candidates(
            images=task.images[candidate : candidate + 1], labels=task.labels[candidate : candidate + 1], clients=(0,)
        )
        known = knowledge_of(task, plan, prepared.protection, candidates=shown)
        said = []
        for arm in (0, 1):
            included = torch.ones(runs, len(task.labels), dtype=torch.bool)
            included[:, candidate] = arm == 1
            batch = Batch(replicas=runs, block=arm, included=included)
            models = run_federation(task, plan, running, Streams(0), batch=batch)
            rounds = tuple(RoundView(round=number) for number in range(plan.rounds))
            views = [View(observer=FINAL_MODEL, plan=plan, rounds=rounds, final_model=model[None]) for model in models]
            said.append([attack.run(view, known, np.random.default_rng(0)) for view in views])
        nonmember, member = said
        return prepared.claims[0], member, nonmember

    return gather


@pytest.mark.parametrize(("correct", "expected"), [(True, Verdict.NOT_REFUTED), (False, Verdict.REFUTED)])
def test_an_attack_on_final_models_judges_a_claim_by_one_score_of_each_run(final_models, correct, expected):
    """Correct version: refuted falsely with probability .01 at most; seeded. Threshold chosen on half of the runs."""
    claim, member, nonmember = final_models(correct)
    assert (
        verdict(claim, MembershipScores.one_per_run(member, nonmember), SplitThreshold(0.5, curve=claim.curve)).verdict
        is expected
    )


def test_scores_of_one_model_are_clustered_and_refused_with_advice(final_models):
    claim, member, nonmember = final_models(True)
    one = CandidateScores(np.concatenate([member[0].values, nonmember[0].values]), member[0].setting)
    with pytest.raises(ValueError, match=r"clustered: give one score of each of many runs.*one_per_run"):
        verdict(claim, one.against(np.array([True, False])))
