"""The suite flagship: every trust model at equal epsilon, on features that no client's record has changed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.public_features import FEATURES, public_features
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.fl.task import dealt_of
from fedassay.fl.training.executor_choice import executor_named
from fedassay.suites.audits import crafted_reports
from fedassay.suites.audits.crafted_reports import CraftedReports
from fedassay.suites.config.resolve import audit_task_of, plan_of, prepare, resolve, task_of
from fedassay.suites.config.suite_file import load_suite

EPSILONS = {1.0, 2.0, 4.0, 8.0}
TRUST = {
    "silo": {"none", "dp_sgd", "adap_dp_fl"},
    "census": {"none", "dp_sgd"},
    "device": {
        *("none", "dp_fedavg", "quantile_clipping", "distributed_discrete_gaussian", "skellam"),
        *("ldp_gaussian", "ldp_piecewise", "ldp_fed", "fedre"),
    },
    "shuffled": {"none", "unis", "apes", "cldp_sgd"},
}


def pictures(name, count, seed):
    rng = torch.Generator().manual_seed(seed)
    images, labels = torch.rand(count, 1, 28, 28, generator=rng), torch.arange(count) % 10
    return Dataset.of_parts(name, (images, labels), (images[:20], labels[:20]), classes=10)


def test_every_trust_model_runs_at_the_same_epsilons():
    spec, _ = load_suite("flagship")
    found = {name: {} for name in TRUST}
    for label, entry in spec.defenses.items():
        fields = entry.model_extra or {}
        found[entry.federation].setdefault(entry.part or label, set()).add(fields.get("epsilon"))
    assert {name: set(parts) for name, parts in found.items()} == TRUST
    every = {part: epsilons for parts in found.values() for part, epsilons in parts.items() if part != "none"}
    assert {part for part, epsilons in every.items() if epsilons == EPSILONS} == set(every)


def test_points_of_one_defense_are_one_line_of_the_figure():
    spec, _ = load_suite("flagship")
    lines = {entry.sweep for entry in spec.defenses.values() if entry.sweep}
    assert lines == {"census_dp_sgd"} | set().union(*TRUST.values()) - {"none"}


def test_smoke_needs_no_downloaded_data_and_every_defense_of_it_can_be_prepared():
    spec, source = load_suite("flagship", preset="smoke")
    assert {one.dataset for one in spec.federations.values()} == {"digits"}
    suite = resolve(spec, source, seed=0)
    for entry in suite.defenses:
        claims = prepare(suite, entry, entry.spec.federation, 0).claims
        assert bool(claims) == (entry.spec.part != "none"), entry.label


def test_a_private_image_changes_its_own_features_alone():
    private, public = pictures("private", 60, 0), pictures("public", 500, 1)
    changed = private.train_images.clone()
    changed[3] = 1 - changed[3]
    here = public_features(private, public).train_images
    there = public_features(replace(private, train_images=changed), public).train_images
    assert here.shape == (60, 1, 1, FEATURES)
    assert (here != there).flatten(1).any(1).nonzero().flatten().tolist() == [3]
    torch.testing.assert_close(here.flatten(1).norm(dim=1), torch.ones(60))


@pytest.mark.long
def test_clients_of_one_sample_train_as_one_after_the_other():
    spec, source = load_suite("flagship", preset="smoke")
    suite = resolve(spec, source, seed=0)
    federation, entry = spec.federations["device"], next(e for e in suite.defenses if e.label == "device_none")
    task = task_of(federation, 0)
    plan, protection = plan_of(federation, entry.change, task), prepare(suite, entry, "device", 0).protection
    assert max(task.sizes) == 2
    assert min(task.sizes) == 1
    models = [
        run_federation(task, plan, protection, Streams(0), executor=executor_named(name))
        for name in ("batched", "sequential")
    ]
    torch.testing.assert_close(*models, atol=1e-6, rtol=1e-5)


def test_a_claim_whose_trials_are_too_large_is_out_of_scope_and_one_about_a_coordinate_is_not(monkeypatch):
    spec, source = load_suite("flagship", preset="smoke")
    suite = resolve(spec, source, seed=0)
    federation, entry = spec.federations["shuffled"], next(e for e in suite.defenses if e.spec.part == "unis")
    plan = plan_of(federation, entry.change, task_of(federation, 0))
    report, coordinate = prepare(suite, entry, "shuffled", 0).claims
    monkeypatch.setattr(crafted_reports, "_MOST", plan.clients * plan.rounds)
    found = [
        CraftedReports().out_of_scope(SimpleNamespace(claim=one, own=(None, plan))) for one in (report, coordinate)
    ]
    assert "audit the defense in a smaller federation" in found[0]
    assert f"{plan.clients} clients" in found[0]
    assert found[1] == ""


def test_an_audit_on_a_small_data_set_has_as_many_clients_as_it_has_samples():
    spec, _ = load_suite("flagship")
    task = audit_task_of(spec.federations["device"], spec.audit, 0)
    assert task.clients == dealt_of(load_dataset("digits"))
    assert set(task.sizes) == {1}
