"""Rows of one training, and of a transfer's teachers, labels and students: known answers by hand."""

from dataclasses import replace

import pytest
import torch
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.fl.recorder import TrafficRecorder
from fedassay.fl.transfer.protection import ReleasedLabels
from fedassay.fl.transfer.recorder import TransferEvent
from fedassay.fl.transfer.task import ABSTAINED
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.utility_rows import transfer_rows
from row_facts import toy_cell
from toy_transfer import logits_of, toy_transfer, toy_transfer_plan

SUITE = {"clients": 3, "samples": 90, "rounds": 4, "text": "[defenses.none]\n"}


@pytest.fixture
def rows_of(planned, tmp_path):
    """(changes) -> the rows of the suite's one training by metric, in their order."""

    def run(name="run", **changes):
        (job,) = planned(**(SUITE | changes)).trials
        store = Store(tmp_path / name)
        assert job.run(store, frozenset()) == []
        return {row.metric: row for row in store.cell_records(job.training.cell_id)}

    return run


def test_a_training_has_rows_of_utility_spread_and_bytes(rows_of):
    rows = rows_of()
    spread = [f"{group}_accuracy_{part}" for group in ("class", "client") for part in ("worst", "mean", "std")]
    traffic = [f"bytes_{way}_{part}" for way in ("up", "down") for part in ("client", "round", "total")]
    assert list(rows) == ["accuracy", "loss", *spread, *traffic]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["class_accuracy_worst"].value <= rows["class_accuracy_mean"].value
    assert rows["client_accuracy_worst"].value <= rows["client_accuracy_mean"].value
    assert (rows["class_accuracy_std"].n, rows["client_accuracy_std"].n) == (10, 3)
    # Every client has the same weight: equal sizes make this the accuracy on all samples.
    assert (rows["accuracy"].direction, rows["loss"].direction) == ("higher_better", "lower_better")
    assert "clients" in rows["client_accuracy_worst"].unit


def test_bytes_of_a_plain_training_are_those_of_its_model(rows_of):
    rows = rows_of()
    one = rows["bytes_up_client"].value
    assert one % 4 == 0
    assert {name: row.value for name, row in rows.items() if name.startswith("bytes")} == {
        f"bytes_{way}_{part}": value
        for way in ("up", "down")
        for part, value in (("client", one), ("round", 3 * one), ("total", 12 * one))
    }
    assert rows["bytes_up_client"].n == 12


def test_a_round_to_which_no_client_comes_counts_nothing(rows_of):
    rows = rows_of(cohort={"poisson": 1e-9})
    assert rows["bytes_up_total"].value == rows["bytes_down_round"].value == 0
    assert (rows["bytes_up_client"].status, rows["bytes_up_client"].value) == ("skipped", None)
    assert rows["bytes_up_client"].reason == "no client took part in any round"


def test_a_training_resumed_without_counts_does_not_print_too_few_bytes(rows_of, monkeypatch):
    monkeypatch.setattr(TrafficRecorder, "watch", lambda self, event: setattr(self, "rounds", event.round))
    row = rows_of()["bytes_up_total"]
    assert (row.status, row.value) == ("skipped", None)
    assert "did not count bytes" in row.reason


@pytest.fixture(scope="module")
def found():
    """Two runs of four queries: in the first run half of the labels are released, one of them true."""
    data = toy_transfer((4, 6), queries=4)
    data = replace(data, public_labels=torch.tensor([0, 1, 2, 0]))
    votes = torch.tensor([[0, 1, 2, 0], [0, 1, 0, 1]])
    labels = torch.tensor([[0, 0, ABSTAINED, ABSTAINED], [0, 1, 2, 0]])
    plan = toy_transfer_plan(data)
    event = TransferEvent(
        plan=plan,
        public_images=data.public_images,
        logits=logits_of(votes, 3).expand(2, 2, 4, 3),
        answers=logits_of(votes, 3).expand(2, 2, 4, 3),
        released=ReleasedLabels(labels=labels, numbers={"spread": torch.tensor([1.0, 2.0]), "pair": torch.zeros(2, 2)}),
        final_model=torch.zeros(2, plan.layout.dim),
    )
    rows = transfer_rows(toy_cell(), data, event, GNMax(epsilon=2.0).prepare(plan).claims)
    return {row.metric: row for row in rows}


def test_the_means_are_those_of_the_runs_and_of_the_teachers(found):
    assert found["teacher_accuracy"].value == 0.75
    assert found["teacher_accuracy"].n == 2
    assert found["answered"].value == 0.75
    assert found["released_accuracy"].value == 0.75
    assert found["spread"].value == 1.5
    assert "pair" not in found


def test_the_interval_is_over_students(found):
    assert found["answered"].ci_high == pytest.approx(0.75 + 12.7062 * 0.25, rel=1e-4)
    # Both students are the zero model.
    assert (found["accuracy"].ci_low, found["accuracy"].n) == (None, 2)


def test_epsilon_stands_with_what_it_is_about(found):
    assert found["epsilon_spent_client"].value == found["epsilon_spent_sample"].value == 2.0
    assert "one client (replace-one)" in found["epsilon_spent_client"].reason
    assert "one sample (add/remove)" in found["epsilon_spent_sample"].reason


def test_a_run_that_released_nothing_has_no_accuracy_of_labels():
    data = toy_transfer((4, 6), queries=4)
    plan = toy_transfer_plan(data)
    silent = ReleasedLabels(labels=torch.full((1, 4), ABSTAINED))
    event = TransferEvent(
        plan=plan,
        public_images=data.public_images,
        logits=torch.zeros(1, 2, 4, 3),
        answers=torch.zeros(1, 2, 4, 3),
        released=silent,
        final_model=torch.zeros(1, plan.layout.dim),
    )
    rows = {row.metric: row for row in transfer_rows(toy_cell(), data, event, ())}
    assert rows["answered"].value == 0.0
    assert "released_accuracy" not in rows
