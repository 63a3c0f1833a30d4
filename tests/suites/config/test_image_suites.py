"""The suites of models that people train on images: their small versions run, and their clients are what they state."""

import os

import pytest
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.suite_file import load_suite

pytestmark = pytest.mark.skipif("FEDASSAY_DATA" not in os.environ, reason="FEDASSAY_DATA is not set: no images here")


@pytest.mark.long
def test_the_small_resnet_trains_is_audited_and_shows_labels(assay):
    outcome = assay("cifar_resnet", preset="smoke")
    rows = {(row.defense, row.attack, row.metric): row for row in outcome.records}
    assert "failed" not in {row.status for row in outcome.records}
    for defense in ("none", "dp_fedavg"):
        assert 0 <= rows[defense, "training", "accuracy"].value <= 1
    # Uploads of dp_fedavg are clipped only, which moves no label that is inferred from a direction.
    found = [row for row in outcome.records if row.attack in ("ilrg", "llg_star", "random_labels")]
    assert {row.status for row in found} == {"ok"}
    (verdict,) = [row.verdict for row in outcome.records if row.role == "audit"]
    assert verdict in ("NOT_REFUTED", "UNDERPOWERED")


@pytest.mark.simulations
def test_the_small_suite_of_writers_scores_writers_and_a_guess(assay):
    outcome = assay("writers_cnn", preset="smoke")
    assert "failed" not in {row.status for row in outcome.records}
    assert {row.attack for row in outcome.records} > {"writers_by_upload", "writers_by_models", "random_people"}


@pytest.mark.simulations
def test_each_client_of_writers_is_one_writer_and_none_is_at_two():
    spec, _ = load_suite("writers_cnn")
    task = task_of(spec.federations["main"], 0)
    writers = [set(task.owners[part].tolist()) for part in task.parts]
    assert [len(one) for one in writers] == [1] * 450
    assert len(set.union(*writers)) == 450
