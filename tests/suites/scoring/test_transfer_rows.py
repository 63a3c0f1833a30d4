"""Rows of a transfer's teachers, labels and students: known answers by hand."""

from dataclasses import replace

import pytest
import torch
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.fl.transfer.protection import ReleasedLabels
from fedassay.fl.transfer.recorder import TransferEvent
from fedassay.fl.transfer.task import ABSTAINED
from fedassay.suites.scoring.utility_rows import transfer_rows
from toy_cell import toy_cell
from toy_transfer import logits_of, toy_transfer, toy_transfer_plan


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
