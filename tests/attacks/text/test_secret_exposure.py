"""Exposure of secrets: the largest for a word that a model learned, chance without training, refused without both."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Knowledge, Undefined
from fedassay.attacks.text.secret_exposure import SecretExposure
from fedassay.audit.evidence import Exposures
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.data.shakespeare import COPIES, shakespeare_secrets
from fedassay.fl.partitions import ByOwner
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.results.cell import Cell
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.membership_rows import score_exposures
from row_facts import FACTS
from spoken_secrets import spoken
from toy_federation import toy_plan
from toy_texts import toy_texts

WORDS = 1023


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    data = shakespeare_secrets(spoken(tmp_path_factory.mktemp("text")))
    model = {"part": "text_transformer", "width": 16, "heads": 2, "layers": 1}
    return build_task(data, model=model, partition=ByOwner(), clients=20, held_out=20, streams=Streams(0))


@pytest.fixture(scope="module")
def probe(task):
    return SecretExposure().plant(task, np.random.default_rng(0))


def exposed(task, probe, model):
    plan = toy_plan(task)
    view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=model.unsqueeze(0))
    knowledge = Knowledge.of(task, plan, Protection(), candidates=probe.shown)
    return SecretExposure(words=WORDS).run(view, knowledge, np.random.default_rng(0))


def trained(task, images, labels, steps=150):
    """A model that has seen these texts alone."""
    model = task.network.initial(Streams(0).generator("init"))
    weights = torch.full((1, len(images)), 1 / len(images))
    for _ in range(steps):
        model = model - 0.5 * task.network.gradient(model[None], images[None], labels[None], weights)[0]
    return model


def test_half_of_the_secrets_are_trained_on_and_each_is_shown_once(task, probe):
    assert len(probe.member) == 40
    assert probe.member.sum() == 20
    assert len(torch.unique(probe.shown.images.flatten(1), dim=0)) == 40
    for image, holder in zip(probe.shown.images, probe.holder, strict=True):
        counts = [int((task.images[part] == image).flatten(1).all(1).sum()) for part in task.parts]
        # A tenth of all windows is dealt to no client.
        assert [client for client, count in enumerate(counts) if count] == ([] if holder < 0 else [holder])
        assert max(counts) <= COPIES


def test_a_word_that_the_model_learned_has_the_largest_exposure_and_no_other(task, probe):
    chosen = int(np.flatnonzero(probe.member)[3])
    model = trained(task, probe.shown.images[chosen : chosen + 1], probe.shown.labels[chosen : chosen + 1])
    found = exposed(task, probe, model).values
    assert found[chosen] == math.log2(WORDS + 1)
    assert np.delete(found, chosen).mean() < 3


def test_without_training_the_mean_exposure_is_that_of_a_random_rank(task, probe):
    found = exposed(task, probe, task.network.initial(Streams(1).generator("init"))).values
    # Its mean and its standard deviation are 1 / ln 2; the mean of 40 deviates by .23.
    assert found.mean() == pytest.approx(1 / math.log(2), abs=4 * 0.23)


def test_a_model_that_says_nothing_exposes_nothing(task, probe):
    assert exposed(task, probe, torch.zeros(task.network.layout.dim)).values.tolist() == [0.0] * 40


def test_rows_are_means_of_trained_and_of_absent_secrets(task, probe, tmp_path):
    values = np.where(probe.member, 8.0, 1.0)
    values[np.flatnonzero(probe.member)[0]] = 4.0
    setting = exposed(task, probe, torch.zeros(task.network.layout.dim)).setting
    cell = Cell(cell_id="c", facts=FACTS | {"attack": "secret_exposure", "seed": 0})
    store = Store(tmp_path / "run")
    given = Exposures(values, setting, WORDS)
    rows = {row.metric: row for row in score_exposures(cell, given, probe, store, adversary="realistic")}
    assert rows["exposure"].value == pytest.approx((19 * 8 + 4) / 20)
    assert (rows["exposure_absent"].value, rows["exposure_absent"].ci_low, rows["exposure"].n) == (1, None, 20)
    assert rows["auc"].value == 1
    with pytest.raises(ValueError, match="must return 40 exposures, one per secret, got 3"):
        score_exposures(cell, Exposures(values[:3], setting, WORDS), probe, store, adversary="realistic")
    with pytest.raises(ValueError, match=r"must be in 0..log2\(1023 \+ 1\)"):
        Exposures(values + 3, setting, WORDS)


def test_without_secrets_on_both_sides_it_is_refused(task):
    for other in (replace(task, held_out=()), toy_texts((2,) * 4, held_out=2)):
        with pytest.raises(Undefined, match="data set shakespeare_secrets with partition by_owner and held_out"):
            SecretExposure().plant(other, np.random.default_rng(0))
