"""Likelihood ratio: naive versions, its exact distribution, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level, Undefined
from fedassay.attacks.membership import candidates as alignment
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.candidates import Candidates, PlantedCandidates
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from scipy import stats
from torch.nn.functional import cross_entropy

NOISY = DPSGDProtection(clip_norm=0.5, noise_multiplier=1.2)


@pytest.fixture
def attacked(toy_task, toy_plan, knowledge_of):
    """(protection, planted, plan changes) -> the attack's knowledge and view, and the lots of client 0."""

    def run(protection, *, task=None, planted=None, seed=3, count=4, **changes):
        task = task or toy_task((4, 6, 5))
        plan = toy_plan(task, **changes)
        planted = planted or LikelihoodRatio(count=count).plant(task, np.random.default_rng(seed))
        recorder, lots = ViewRecorder(observer=UPLOADS), LotRecorder(client=0)
        final = run_federation(task, plan, protection, Streams(seed), recorders=[recorder, lots])
        view = recorder.view(plan, final)
        hypotheses = worst_case_hypotheses(task, plan, protection, {0: lots}, view, planted)
        knowledge = knowledge_of(
            task, plan, protection, candidates=planted.shown, hypotheses=hypotheses, level=Level.WORST_CASE
        )
        return view, knowledge, planted, lots, task

    return run


def scored(attack, view, knowledge):
    return attack.run(view, knowledge, np.random.default_rng(0)).values


def gradient(task, model, image, label):
    """By PyTorch's own autograd, in double precision."""
    weights = model.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(cross_entropy(task.network.logits(weights, image[None]), label[None]), weights)
    return slope.double().numpy()


def clipped(row, norm=0.5):
    return row * min(1.0, norm / np.linalg.norm(row))


def naive(residual, share, noise, rate, steps=1):
    """Both densities along the share written out; ``noise`` of the whole release, ``share`` of one draw."""
    length = np.linalg.norm(share)
    along, taken = residual @ share / length, np.arange(steps + 1)
    inside = (stats.binom.pmf(taken, steps, rate) * stats.norm.pdf(along, taken * length, noise)).sum()
    return math.log(inside / stats.norm.pdf(along, 0, noise))


def rounds_of(view):
    """Each round's model and uploads by sender, in double precision."""
    for seen in view.rounds:
        rows = seen.reports.values[0].double().numpy()
        present = seen.reports.present[0].tolist()
        yield (
            seen.broadcast[0],
            {k: row for k, row, here in zip(seen.reports.senders, rows, present, strict=True) if here},
        )


@pytest.mark.parametrize("rest", ["estimated", "known"])
def test_the_ratio_does_not_depend_on_how_many_candidates_are_held_at_once(rest, attacked, monkeypatch):
    view, knowledge, *_ = attacked(NOISY, lot=Poisson(0.5), rounds=3)
    attack = LikelihoodRatio(count=4, rest=rest)
    together = scored(attack, view, knowledge)
    monkeypatch.setattr(alignment, "CHUNK", 3)
    np.testing.assert_allclose(scored(attack, view, knowledge), together, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rate", [0.4, 1.0])
def test_the_known_ratio_is_the_formula_written_out(rate, attacked):
    view, knowledge, planted, lots, task = attacked(NOISY, lot=Poisson(rate), rounds=5)
    scores = scored(LikelihoodRatio(count=4, rest="known"), view, knowledge)
    expected, own = np.zeros(8), task.parts[0].tolist()
    for number, (model, uploads) in enumerate(rounds_of(view)):
        drawn = [place for place in range(len(own)) if lots.lots[number][0][0, place]]
        for i, (image, label) in enumerate(zip(planted.shown.images, planted.shown.labels, strict=True)):
            others = [own[place] for place in drawn if place != planted.sample[i]]
            rest = sum(clipped(gradient(task, model, task.images[k], task.labels[k])) for k in others)
            share, lot = clipped(gradient(task, model, image, label)), 4 * rate
            # In sums of gradients: the upload is minus a lot's share of them, and its noise is 1.2 clip norms.
            residual = -lot * uploads[0] - rest
            expected[i] += math.log(
                1 - rate + rate * math.exp((residual @ share - share @ share / 2) / (1.2 * 0.5) ** 2)
            )
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


ESTIMATED = {
    "dp_sgd": (NOISY, FedSGD(learning_rate=0.5), 0.5),
    "dp_sgd, two steps": (NOISY, FedAvg(learning_rate=0.3, local_steps=2), 0.5),
    "undefended": (Protection(), FedSGD(learning_rate=0.5), math.inf),
    "undefended, two steps": (Protection(), FedAvg(learning_rate=0.3, local_steps=2), math.inf),
    "ldp": (LDPGaussianProtection(clip_norm=0.1, noise_std=0.2), FedSGD(learning_rate=0.5), math.inf),
    "dp_fedavg": (DPFedAvgProtection(clip_norm=0.1, noise_multiplier=1.0), FedSGD(learning_rate=0.5), math.inf),
}


@pytest.mark.parametrize("case", ESTIMATED)
def test_the_estimated_ratio_is_the_formula_with_the_others_mean_and_scatter(case, attacked):
    """A published law of samples defines their clipping; a law of whole reports does not describe a sample."""
    protection, algorithm, clip = ESTIMATED[case]
    steps, scale = algorithm.local_steps, abs(algorithm.linear_scale)
    view, knowledge, planted, _, task = attacked(protection, lot=Poisson(0.5), algorithm=algorithm, rounds=4)
    expected = np.zeros(8)
    for model, uploads in rounds_of(view):
        mine, others = uploads.pop(0), np.stack(list(uploads.values()))
        variance = ((others - others.mean(0)) ** 2).sum() / others.shape[1] * (1 + 1 / 2)
        for i, (image, label) in enumerate(zip(planted.shown.images, planted.shown.labels, strict=True)):
            share = -scale / 2 * clipped(gradient(task, model, image, label), clip)
            expected[i] += naive(mine - others.mean(0), share, math.sqrt(variance), 0.5, steps)
    np.testing.assert_allclose(scored(LikelihoodRatio(count=4), view, knowledge), expected, rtol=1e-4, atol=1e-4)


def one_candidate(task, member):
    """Client 0's second sample, or an outsider."""
    image, label = (task.images, task.labels) if member else (task.outsider_images, task.outsider_labels)
    shown = Candidates(images=image[1:2], labels=label[1:2], clients=(0,))
    inside = np.array([member])
    return PlantedCandidates(shown=shown, holder=inside - 1, sample=2 * inside - 1)


@pytest.mark.simulations
@pytest.mark.parametrize("member", [True, False])
def test_known_scores_have_the_exact_distribution_whatever_the_data(member, toy_task, attacked):
    """All gradients clipped, all drawn: N(+-mu^2/2, mu^2), mu = sqrt(rounds)/sigma.

    Kolmogorov-Smirnov on 150 runs; a right attack fails at one seed in 1,000.
    """
    protection, task = DPSGDProtection(clip_norm=0.1, noise_multiplier=2.0), toy_task((3, 2))
    scores = []
    for seed in range(150):
        view, knowledge, *_ = attacked(protection, task=task, planted=one_candidate(task, member), seed=seed)
        scores.append(scored(LikelihoodRatio(count=1, rest="known"), view, knowledge)[0])
    mu = math.sqrt(3) / 2
    assert stats.kstest(scores, stats.norm((0.5 if member else -0.5) * mu**2, mu).cdf).pvalue > 1e-3
    assert stats.kstest(scores, stats.norm((-0.5 if member else 0.5) * mu**2, mu).cdf).pvalue < 1e-6


@pytest.mark.simulations
@pytest.mark.parametrize("rest", ["known", "estimated"])
def test_candidates_that_no_client_trained_on_score_at_chance(rest, toy_task, attacked):
    """100 federations, two kinds of outsiders, 6 each: the mean AUC within four standard errors of a half."""
    values = []
    for seed in range(100):
        task = toy_task((4, 6, 5), outsiders=12, seed=seed)
        shown = Candidates(images=task.outsider_images, labels=task.outsider_labels, clients=(0,))
        nobody = np.full(12, -1)
        planted = PlantedCandidates(shown=shown, holder=nobody, sample=nobody)
        view, knowledge, *_ = attacked(NOISY, task=task, planted=planted, seed=seed)
        scores = scored(LikelihoodRatio(rest=rest), view, knowledge)
        values.append(stats.mannwhitneyu(scores[:6], scores[6:]).statistic / 36)
    assert abs(np.mean(values) - 0.5) < 4 * (13 / (12 * 36) / 100) ** 0.5


def test_rounds_without_the_client_are_left_out(attacked):
    """The sum over all rounds is the sum over those to which client 0 came."""
    view, knowledge, *_ = attacked(NOISY, cohort=Poisson(0.5), rounds=12)
    came = [seen for seen in view.rounds if 0 in seen.reports.senders]
    assert 0 < len(came) < 12
    attack = LikelihoodRatio(count=4, rest="known")
    whole, parts = scored(attack, view, knowledge), [replace(view, rounds=(seen,)) for seen in came]
    np.testing.assert_allclose(whole, np.sum([scored(attack, part, knowledge) for part in parts], axis=0))


def test_it_needs_two_other_clients_to_estimate_and_none_where_all_is_known(toy_task, attacked):
    view, knowledge, *_ = attacked(NOISY, task=toy_task((4, 6)))
    with pytest.raises(Undefined, match="took part in no round together with 2 others"):
        scored(LikelihoodRatio(count=4), view, knowledge)
    assert np.isfinite(scored(LikelihoodRatio(count=4, rest="known"), view, knowledge)).all()


def test_a_client_that_never_took_part_is_refused(attacked):
    view, knowledge, *_ = attacked(NOISY)
    absent = [replace(seen, reports=replace(seen.reports, senders=(7, 8, 9))) for seen in view.rounds]
    for rest in ("known", "estimated"):
        with pytest.raises(Undefined, match="the audited client took part in no round"):
            scored(LikelihoodRatio(count=4, rest=rest), replace(view, rounds=tuple(absent)), knowledge)


@pytest.mark.parametrize(
    ("protection", "algorithm"),
    [
        (Protection(), FedSGD(learning_rate=0.5)),
        (DPFedAvgProtection(clip_norm=0.5, noise_multiplier=1.0), FedSGD(learning_rate=0.5)),
        (NOISY, FedAvg(learning_rate=0.3, local_steps=2)),
        (NOISY, FedAvg(learning_rate=0.3, local_steps=1, optimizer="adam")),
    ],
    ids=["none", "dp_fedavg", "two steps", "adam"],
)
def test_without_a_law_and_a_known_rest_there_is_no_exact_ratio(protection, algorithm, attacked):
    view, knowledge, *_ = attacked(protection, algorithm=algorithm)
    with pytest.raises(Undefined, match="the exact ratio is not defined"):
        scored(LikelihoodRatio(count=4, rest="known"), view, knowledge)


def test_what_it_is_given_follows_from_its_field():
    assert (LikelihoodRatio().level, LikelihoodRatio(rest="known").level) == (Level.REALISTIC, Level.WORST_CASE)
