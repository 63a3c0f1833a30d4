"""Rows of label attacks: guesses meet the labels of the lots behind the uploads, by hand and through a whole run."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, LabelCounts, Setting
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.recorder import LotRecorder
from fedassay.fl.sampling import FixedSize, Full
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.tables.suite import FederationSpec
from fedassay.suites.results.cell import Cell
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.label_rows import score_label_counts, true_counts
from row_facts import FACTS
from suite_text import tables
from toy_federation import toy_plan

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
)


def federation(size=4, clients=3, lot=None, steps=1):
    """A task and its plan."""
    algorithm = {"name": "fedsgd", "learning_rate": 1.0}
    spec = FederationSpec(model="logistic", clients=clients, samples=size * clients, rounds=1, algorithm=algorithm)
    task = task_of(spec, 0)
    ours = FedSGD(learning_rate=1.0) if steps == 1 else FedAvg(learning_rate=1.0, local_steps=steps)
    return task, toy_plan(task, rounds=2, lot=lot or Full(), algorithm=ours)


def recorded(*rounds):
    """One client's masks: for each round, for each step."""
    steps = [[torch.tensor([mask], dtype=torch.bool) for mask in masks] for masks in rounds]
    return LotRecorder(client=0, lots=steps)


def labels_of(task, client, places):
    return np.bincount(task.labels[task.parts[client]][places].numpy(), minlength=10)


def test_truth_is_of_the_round_asked_about_and_leaves_out_who_was_absent():
    task, plan = federation(lot=FixedSize(2))
    lots = {
        0: recorded([[1, 1, 0, 0]], [[0, 1, 1, 0]]),
        1: recorded([[1, 0, 1, 0]], []),
        2: recorded([], [[0, 0, 1, 1]]),
    }
    wanted = [labels_of(task, 0, [1, 2]), labels_of(task, 2, [2, 3])]
    np.testing.assert_array_equal(true_counts(task, plan, lots, 1), wanted)


def test_drawn_lots_count_in_each_step_and_full_ones_once():
    task, drawn = federation(clients=1, lot=FixedSize(2), steps=2)
    lots = {0: recorded([[1, 1, 0, 0], [0, 1, 0, 1]])}
    wanted = labels_of(task, 0, [0, 1]) + labels_of(task, 0, [1, 3])
    np.testing.assert_array_equal(true_counts(task, drawn, lots, 0), [wanted])
    task, full = federation(clients=1, steps=2)
    everything = {0: recorded([[1, 1, 1, 1], [1, 1, 1, 1]])}
    np.testing.assert_array_equal(true_counts(task, full, everything, 0), [labels_of(task, 0, [0, 1, 2, 3])])


def rows_of(counts, task, plan):
    lots = {client: recorded([[1] * len(part)]) for client, part in enumerate(task.parts)}
    return score_label_counts(
        Cell(cell_id="c", facts=FACTS | {"attack": "llg", "seed": 0}), LabelCounts(counts, SETTING), task, plan, lots
    )


def test_batches_get_every_score_with_its_interval_and_direction():
    task, plan = federation(size=8)
    counts = np.stack([labels_of(task, client, range(8)) for client in range(3)])
    counts[0] = np.roll(counts[0], 1)
    rows = {row.metric: row for row in rows_of(counts, task, plan)}
    assert set(rows) == {
        "label_over_chance",
        "label_accuracy",
        "label_exact_rate",
        "label_count_error",
        "label_total_variation",
        "label_class_existence",
        "label_count_accuracy",
    }
    assert rows["label_exact_rate"].value == pytest.approx(2 / 3)
    assert {metric for metric, row in rows.items() if row.direction == "lower_leaks"} == {
        "label_count_error",
        "label_total_variation",
    }
    for row in rows.values():
        assert row.n == 3
        assert row.ci_low < row.value < row.ci_high
        assert row.ci_level == 0.95


def test_equal_values_have_no_interval_but_a_rate_always_has():
    task, plan = federation(size=8)
    counts = np.stack([labels_of(task, client, range(8)) for client in range(3)])
    rows = {row.metric: row for row in rows_of(counts, task, plan)}
    assert (rows["label_accuracy"].value, rows["label_accuracy"].ci_low, rows["label_accuracy"].ci_level) == (
        1,
        None,
        None,
    )
    # Clopper-Pearson of 3 of 3: (.025)**(1/3) to 1.
    assert rows["label_exact_rate"].ci_low == pytest.approx(0.025 ** (1 / 3))
    assert rows["label_exact_rate"].ci_high == 1


def test_single_samples_get_the_share_named_right():
    task, plan = federation(size=1, clients=5)
    guessed = np.stack([labels_of(task, client, [0]) for client in range(5)])
    guessed[[0, 3]] = np.roll(guessed[[0, 3]], 1, axis=1)
    (row,) = rows_of(guessed, task, plan)
    assert (row.metric, row.value, row.n, row.unit) == ("label_accuracy", 3 / 5, 5, "share of uploads")


def test_a_run_scores_the_lots_that_were_drawn_in_the_round_attacked(planned, tmp_path):
    drawn = {"cohort": {"fixed_size": 3}, "lot": {"fixed_size": 30}}
    attacks = {"llg_plus": {"round": 1}, "equal_counts": {"round": 1}, "loss": {"count": 8}}
    text = tables(defenses={"none": {}}, attacks=attacks)
    (job,) = planned(text=text, clients=4, samples=400, rounds=2, **drawn).trials
    store = Store(tmp_path / "run")
    assert job.run(store, frozenset()) == []
    rows = [row for cell in job.cells for row in store.cell_records(cell.cell_id) if row.metric.startswith("label_")]
    values = {(row.attack, row.metric): row.value for row in rows}
    assert {row.n for row in rows} == {3}
    assert values["equal_counts", "label_over_chance"] == pytest.approx(0, abs=1e-12)
    assert values["llg_plus", "label_over_chance"] > 0.5
