"""A malicious server: what it sends, what stays its own, and the control that climbs nowhere."""

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.active_ascent import ActiveAscent
from fedassay.attacks.membership.gradient_cosine import GradientCosine
from fedassay.audit.observer import UPLOADS
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.streams import Streams


@pytest.fixture
def setting(toy_task, toy_plan, knowledge_of):
    task = toy_task((4, 4, 4), model="mlp", outsiders=12)
    plan, probe = toy_plan(task), ActiveAscent(count=3, client="all").plant(task, np.random.default_rng(0))
    return task, plan, probe, knowledge_of(task, plan, Protection(), candidates=probe.shown)


def watched(task, plan, tamper=None):
    recorder = ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, Protection(), Streams(0), recorders=[recorder], tamper=tamper)
    return recorder.view(plan, final)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_every_candidate_is_raised_by_a_step_of_the_stated_length(rate, setting):
    task, _, probe, knowledge = setting
    model = task.network.initial(np.random.default_rng(1))
    sent = ActiveAscent(rate=rate).tamper(model[None], knowledge)[0]
    assert float((sent - model).norm() / model.norm()) == pytest.approx(rate, rel=1e-4)
    before, after = (task.network.losses(one, probe.shown.images, probe.shown.labels).mean() for one in (model, sent))
    assert after > before


def test_clients_train_on_what_is_sent_and_the_server_goes_on_from_its_own(setting):
    task, plan, _, _ = setting
    view = watched(task, plan, tamper=lambda models: models + 1)
    own = task.network.initial(Streams(0).generator("init"))
    for seen in view.rounds:
        torch.testing.assert_close(seen.broadcast[0], own + 1)
        own = own + 0.5 * seen.reports.values[0].mean(0)
    torch.testing.assert_close(view.final_model[0], own)


def test_the_control_that_climbs_nowhere_is_the_passive_attack(setting):
    task, plan, _, knowledge = setting
    attack = ActiveAscent(count=3, client="all", rate=0.0)
    seen = watched(task, plan, tamper=lambda models: attack.tamper(models, knowledge))
    passive = watched(task, plan)
    assert torch.equal(seen.final_model, passive.final_model)
    ours, theirs = (
        one.run(view, knowledge, np.random.default_rng(0)).values
        for one, view in ((attack, seen), (GradientCosine(count=3, client="all"), passive))
    )
    np.testing.assert_array_equal(ours, theirs)


def test_a_tampered_model_of_another_shape_is_refused(setting):
    task, plan, _, _ = setting
    with pytest.raises(ValueError, match="tamper must return"):
        watched(task, plan, tamper=lambda models: models[:, 1:])


@pytest.mark.simulations
def test_an_active_attack_has_a_federation_of_its_own_and_leaves_the_others_alone(assay, suite_file, timeless):
    ascent = (
        '[attacks.active_ascent]\ncount = 8\n\n[attacks.control]\npart = "active_ascent"\nrate = 0.0\ncount = 8\n\n'
    )
    passive = "[attacks.gradient_cosine]\ncount = 8\n\n[attacks.loss]\n"
    run, alone = (assay(suite_file("[attacks.loss]\n", tables)) for tables in (ascent + passive, passive))
    scores = {(row.defense, row.attack): row.value for row in run.records if row.metric == "auc"}
    for defense in ("none", "ldp_gaussian"):
        assert scores[defense, "control"] == scores[defense, "gradient_cosine"]
    values = [
        {(r.defense, r.attack, r.metric): r.value for r in one.records if "a" in r.attack} for one in (run, alone)
    ]
    assert all(values[0][key] == value for key, value in values[1].items())


@pytest.mark.parametrize("rate", [-0.1, float("nan"), True])
def test_a_bad_rate_is_shown(rate):
    with pytest.raises(ValueError, match=r"rate .*must be a number >= 0"):
        ActiveAscent(rate=rate)
