"""Loss threshold: minus the loss under the final model; it finds memorised samples, and none where none was.

Random scores: a null attack on membership; and what all attacks on candidates need and refuse.

Scores of a membership attack over independent replicas are evidence for an audit; scores of one run are not.
"""

from functools import cache

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.attacks.membership.random_scores import RandomScores
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import CandidateScores, MembershipScores
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import FINAL_MODEL
from fedassay.audit.threshold import FixedThreshold, SplitThreshold
from fedassay.defenses.controls.clipping import NoClipProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.candidates import Candidates, PlantedCandidates
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundView, View
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from fedassay.suites.scoring.membership_rows import auc

COUNT = 10


@pytest.fixture
def attacked(toy_plan, knowledge_of):
    """(task, final model, planted) -> the attack's scores."""

    def run(task, model, planted):
        plan = toy_plan(task)
        view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=model[None])
        knowledge = knowledge_of(task, plan, Protection(), candidates=planted.shown)
        return LossThreshold(count=COUNT).run(view, knowledge, np.random.default_rng(0))

    return run


def test_scores_are_minus_the_cross_entropy_by_hand(toy_task, attacked):
    task = toy_task((COUNT,), outsiders=COUNT)
    planted = LossThreshold(count=COUNT).plant(task, np.random.default_rng(1))
    model = task.network.initial(np.random.default_rng(2))
    layers = [layer.double().numpy() for layer in task.network.layout.unflatten(model).values()]
    logits = planted.shown.images.flatten(1).double().numpy() @ layers[0].T + layers[1]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.log(chances[np.arange(2 * COUNT), planted.shown.labels.numpy()])
    np.testing.assert_allclose(attacked(task, model, planted).values, expected, atol=1e-6)


def test_a_model_of_zero_loss_on_members_gives_them_all_away(toy_task, attacked):
    """Logistic on 9 pixels: pixel k alight is member k, and its weights point to the member's label."""
    task = toy_task((9,), side=3)
    images = torch.eye(9).view(9, 1, 3, 3)
    labels = torch.arange(9) % 3
    weight = 100.0 * torch.nn.functional.one_hot(labels, 3).float().T
    model = task.network.layout.flatten({"output.weight": weight, "output.bias": torch.zeros(3)})
    # The same pictures under another label: they differ only in that the model fits the members.
    shown = Candidates(images=torch.cat([images, images]), labels=torch.cat([labels, (labels + 1) % 3]), clients=(0,))
    places = np.r_[np.arange(9), np.full(9, -1)]
    planted = PlantedCandidates(shown=shown, holder=np.minimum(places, 0), sample=places)
    scores = attacked(task, model, planted).against(planted.member)
    np.testing.assert_allclose(scores.member, 0, atol=1e-6)
    assert auc(scores) == 1.0


def test_without_candidates_there_is_nothing_to_score(toy_task, toy_plan, knowledge_of):
    task = toy_task()
    plan = toy_plan(task)
    view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=torch.zeros(1, plan.layout.dim))
    with pytest.raises(ValueError, match="LossThreshold needs candidates, which must be planted before training"):
        LossThreshold().run(view, knowledge_of(task, plan, Protection()), np.random.default_rng(0))


PARTS = [RandomScores, LossThreshold, LikelihoodRatio]


@pytest.mark.parametrize("part", PARTS)
def test_half_of_the_candidates_are_the_clients_own_and_half_outsiders(part, toy_task):
    task = toy_task((9, 20, 11), outsiders=16)
    planted = part(count=15, client=1).plant(task, np.random.default_rng(3))
    assert planted.shown.clients == (1,)
    assert planted.member.sum() == 15
    for image, place in zip(planted.shown.images, planted.sample, strict=True):
        home = task.outsider_images if place < 0 else task.images[task.parts[1][place : place + 1]]
        assert (home == image).flatten(1).all(1).any()
    assert not np.array_equal(planted.member, np.sort(planted.member))


def test_attacks_of_one_stream_ask_about_the_same_candidates(toy_task):
    all_planted = [part(count=4).plant(toy_task(), np.random.default_rng(3)) for part in PARTS]
    for planted in all_planted[1:]:
        np.testing.assert_array_equal(planted.sample, all_planted[0].sample)
        assert torch.equal(planted.shown.images, all_planted[0].shown.images)


ALPHA = 0.01


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
        running = prepared.protection if correct else NoClipProtection(clip_norm=0.1, noise_multiplier=0.01)
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


@pytest.mark.parametrize(("correct", "expected"), [(True, Verdict.UNDERPOWERED), (False, Verdict.REFUTED)])
def test_an_attack_on_final_models_judges_a_claim_by_one_score_of_each_run(final_models, correct, expected):
    """Correct version: refuted falsely with probability .01 at most; seeded. Threshold chosen on half of the runs,
    which are too few for more than that nothing is shown.
    """
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
