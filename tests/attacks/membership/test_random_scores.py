"""Random scores: a null attack on membership; and what all attacks on candidates need and refuse."""

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.attacks.membership.random_scores import RandomScores
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from fedassay.suites.scoring.membership_rows import auc

PARTS = [RandomScores, LossThreshold, LikelihoodRatio]


@pytest.fixture
def scored_run(toy_task, toy_plan, knowledge_of):
    """(final model, seed, observer) -> scores and truth."""
    task = toy_task((20,), outsiders=20)
    plan = toy_plan(task)
    probe = RandomScores(count=20).plant(task, np.random.default_rng(0))
    knowledge = knowledge_of(task, plan, Protection(), candidates=probe.shown)

    def run(model=0.0, seed=0, observer=FINAL_MODEL):
        final = torch.full((1, plan.layout.dim), model)
        view = View(observer=observer, plan=plan, rounds=(), final_model=final)
        return RandomScores(count=20).run(view, knowledge, np.random.default_rng(seed)), probe

    return run


def test_over_many_seeds_it_is_right_half_of_the_time(scored_run):
    """2,000 draws of 20 and 20 candidates: the mean AUC within four standard errors of a half."""
    values = [auc(scores.against(probe.member)) for scores, probe in (scored_run(seed=seed) for seed in range(2000))]
    assert abs(np.mean(values) - 0.5) < 4 * (41 / (12 * 400) / 2000) ** 0.5


@pytest.mark.parametrize("part", PARTS)
def test_half_of_the_candidates_are_the_clients_own_and_half_outsiders(part, toy_task):
    task = toy_task((9, 20, 11), outsiders=16)
    probe = part(count=15, client=1).plant(task, np.random.default_rng(3))
    assert probe.shown.clients == (1,)
    assert probe.member.sum() == 15
    for image, place in zip(probe.shown.images, probe.sample, strict=True):
        home = task.outsider_images if place < 0 else task.images[task.parts[1][place : place + 1]]
        assert (home == image).flatten(1).all(1).any()
    assert not np.array_equal(probe.member, np.sort(probe.member))


def test_attacks_of_one_stream_ask_about_the_same_candidates(toy_task):
    probes = [part(count=4).plant(toy_task(), np.random.default_rng(3)) for part in PARTS]
    for probe in probes[1:]:
        np.testing.assert_array_equal(probe.sample, probes[0].sample)
        assert torch.equal(probe.shown.images, probes[0].shown.images)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 0}, "count must be a whole number >= 1, got 0"),
        ({"count": 2.5}, "count must be a whole number >= 1, got 2.5"),
        ({"count": float("nan")}, "count must be a whole number >= 1, got nan"),
        ({"client": -1}, 'client must be a whole number >= 0 or "all", got -1'),
        ({"client": True}, 'client must be a whole number >= 0 or "all", got True'),
    ],
    ids=str,
)
def test_a_bad_field_is_named_and_shown(fields, message):
    with pytest.raises(ValueError, match=message):
        RandomScores(**fields)
