"""Scores of a membership attack over independent replicas are evidence for an audit; scores of one run are not."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.catalogue import estimators
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import FINAL_MODEL, UPLOADS
from fedassay.audit.threshold import FixedThreshold, SplitThreshold
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.canary import DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import lot_sum
from fedassay.fl.probe import CandidateProbe, Candidates
from fedassay.fl.recorder import LotRecorder, RoundView, View, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from fedassay.suites.attacking.worst_case import worst_case_hypotheses

TRIALS, ROUNDS, ALPHA = 100, 2, 0.01
EXACT = LikelihoodRatio(count=1, rest="known")


@dataclass(frozen=True, kw_only=True)
class HalfTheNoise(DPSGDProtection):
    """Planted bug: publishes the law that is claimed and adds half its noise."""

    def local_step(self, gradients, present, client, context, state, rng):
        halved = DPSGDProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier / 2)
        return halved.local_step(gradients, present, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class NoClip(DPSGDProtection):
    """Planted bug: the clip is forgotten."""

    def total(self, gradients, present):
        return lot_sum(gradients, present)


@pytest.fixture(scope="module")
def court(toy_task, toy_plan, knowledge_of):
    """(broken version or None) -> the claim of dp_sgd, and the scores of one sample that takes part or not.

    Every trial is a federation of its own, with its own noise; in world 1 the client holds one sample more.
    """

    @cache
    def gather(broken=None):
        task = toy_task((4, 3))
        plan = toy_plan(task, rounds=ROUNDS)
        prepared = DPSGD(epsilon=4.0, delta=1e-5, clip_norm=0.1).prepare(plan)
        correct, (claim,) = prepared.protection, prepared.claims
        running = correct if broken is None else broken(clip_norm=0.1, noise_multiplier=correct.noise_multiplier)
        image, label = task.outsider_images[:1], task.outsider_labels[:1]
        canary = DataCanary(unit=claim.unit, images=image, present=label)
        probe = CandidateProbe(
            shown=Candidates(images=image, labels=label, clients=(0,)), holder=np.array([-1]), sample=np.array([-1])
        )

        def score(world, number):
            recorder, lots = ViewRecorder(observer=EXACT.observer), LotRecorder(client=0)
            batch = Batch(replicas=1, block=number, world=world)
            final = run_federation(
                task, plan, running, Streams(0), batch=batch, canary=canary, recorders=[recorder, lots]
            )
            view = recorder.view(plan, final)
            hypotheses = worst_case_hypotheses(task, plan, correct, {0: lots}, view, probe)
            known = knowledge_of(
                task, plan, correct, candidates=probe.shown, hypotheses=hypotheses, level=Level.WORST_CASE
            )
            return EXACT.run(view, known, np.random.default_rng(0))

        found = [[score(world, number) for number in range(TRIALS)] for world in (0, 1)]
        nonmember, member = (np.concatenate([one.values for one in side]) for side in found)
        # One score a run: what was clustered within a run is independent over runs.
        setting = replace(found[0][0].setting, design=Design.INDEPENDENT)
        return claim, MembershipScores(member, nonmember, setting)

    return gather


def verdict(claim, scores, threshold=None):
    """At a ratio of 1 by default: fixed before any score is seen."""
    policy = threshold or FixedThreshold(0.0)
    measured = clopper_pearson(
        scores, delta=claim.delta, alpha=ALPHA, threshold=policy, curve=claim.curve, epsilon=claim.epsilon
    )
    return judge(claim, measured)


@pytest.mark.simulations
def test_a_correct_defense_is_not_refuted(court):
    """Refuted falsely with probability .01 at most, and 1e-4 as the joint bound is loose; seeded."""
    claim, scores = court()
    assert verdict(claim, scores).verdict is Verdict.NOT_REFUTED
    # The attack is the exact test: it separates as well as the mechanism allows.
    mu = ROUNDS**0.5 / claim.parameters["noise_multiplier"]
    shift = scores.member.mean() - scores.nonmember.mean()
    assert shift == pytest.approx(mu**2, abs=4 * mu * (2 / TRIALS) ** 0.5)


@pytest.mark.simulations
def test_half_the_noise_is_refuted_by_the_same_attack(court):
    found = verdict(*court(HalfTheNoise))
    assert (found.verdict, found.route) == (Verdict.REFUTED, "curve")


@pytest.mark.simulations
def test_a_missing_clip_is_refuted_at_a_threshold_chosen_on_other_runs(court):
    """The other samples' rows are not clipped either, which moves both worlds' scores away from 0."""
    claim, scores = court(NoClip)
    found = verdict(claim, scores, SplitThreshold(0.5, curve=claim.curve))
    assert (found.verdict, found.route) == (Verdict.REFUTED, "curve")


@pytest.mark.simulations
def test_evidence_of_another_unit_or_observer_is_out_of_scope(court):
    claim, scores = court()
    weaker = replace(claim, observer=FINAL_MODEL)
    assert verdict(weaker, scores).verdict is Verdict.OUT_OF_SCOPE


@pytest.mark.parametrize("runs", [None, np.arange(40) // 2])
def test_scores_of_one_noise_draw_are_refused_by_every_estimator_of_independent_trials(runs):
    rng = np.random.default_rng(0)
    base = Setting(
        unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=3, design=Design.CLUSTERED
    )
    clustered = MembershipScores(rng.normal(size=40), rng.normal(size=40), base, runs, runs)
    asked = {
        "delta": 1e-5,
        "alpha": 0.05,
        "threshold": FixedThreshold(0.0),
        "sigma": 1.0,
        "rate": 1.0,
        "rounds": 3,
        "steps": 1,
    }
    refusing = {name: one for name, one in estimators().items() if one.evidence is MembershipScores}
    assert {"clopper_pearson", "gaussian_dp", "joint_beta", "sequential", "z_test"} <= refusing.keys()
    for one in refusing.values():
        with pytest.raises(ValueError, match=r"independent trials.*clustered"):
            one.measure(clustered, **{name: asked[name] for name in one.required})


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
        for world in (0, 1):
            included = torch.ones(runs, len(task.labels), dtype=torch.bool)
            included[:, candidate] = world == 1
            batch = Batch(replicas=runs, block=world, included=included)
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
