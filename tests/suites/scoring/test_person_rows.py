"""Rows of attacks on people of a vertical federation: known answers by hand."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, PersonColumns, PersonLabels, Setting
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.fl.vertical.task import People
from fedassay.suites.results.cell import Cell
from fedassay.suites.scoring.label_rows import score_person_columns, score_person_labels

SETTING = Setting(
    unit=Unit.LABEL, adjacency=Adjacency.REPLACE_ONE, observer=PASSIVE_PARTY, rounds=1, design=Design.CLUSTERED
)
CELL = Cell(
    cell_id="c",
    facts={
        "run_id": "r",
        "suite": "s",
        "suite_version": "1",
        "federation": "main",
        "dataset": "d",
        "dataset_sha256": "",
        "model": "m",
        "defense": "none",
        "defense_version": "1",
        "role": "attack",
        "attack": "a",
        "attack_version": "1",
    },
)
# Three people of class 0 and one of class 1.
PEOPLE = People(columns=(torch.tensor([[0.0], [2], [4], [2]]), torch.zeros(4, 0)), labels=torch.tensor([0, 0, 0, 1]))


def rows(scores, people=(0, 1, 2, 3)):
    evidence = PersonLabels(np.array(scores, dtype=float), np.array(people), SETTING)
    return {row.metric: row for row in score_person_labels(CELL, evidence, PEOPLE)}


def test_naming_the_majority_is_a_good_accuracy_and_no_gain_over_chance():
    found = rows([[1, 0]] * 4)
    assert found["label_accuracy"].value == 0.75
    assert found["label_over_chance"].value == pytest.approx(0)
    assert found["label_auc"].value == 0.5


def test_a_perfect_attack_scores_one_and_a_reversed_one_minus_one():
    right = [[1, 0], [1, 0], [1, 0], [0, 1]]
    assert {name: row.value for name, row in rows(right).items()} == pytest.approx(
        {"label_over_chance": 1, "label_accuracy": 1, "label_auc": 1}
    )
    wrong = [[0, 1], [0, 1], [0, 1], [1, 0]]
    assert rows(wrong)["label_over_chance"].value == pytest.approx(-1)


def test_a_person_of_a_rare_class_weighs_as_much_as_its_class():
    found = rows([[1, 0], [1, 0], [0, 1], [0, 1]])
    # Recall 2/3 and 1: their mean is 5/6, halfway from 1/2 to 1 is 2/3.
    assert found["label_over_chance"].value == pytest.approx(2 / 3)
    assert found["label_auc"].value == pytest.approx((1 + 1 + 0.5) / 3)


def test_one_class_alone_leaves_nothing_to_infer():
    found = rows([[1, 0]] * 3, people=(0, 1, 2))
    assert found["label_over_chance"].value == 0
    assert "nothing to infer" in found["label_over_chance"].ci_method
    assert "label_auc" not in found


def test_guessing_the_mean_of_a_column_has_an_error_of_one():
    evidence = PersonColumns(np.full((4, 1), 2.0), 0, np.arange(4), SETTING)
    found = {row.metric: row.value for row in score_person_columns(CELL, evidence, PEOPLE)}
    assert found == pytest.approx({"column_error": 1, "column_mse": 2})
    assert next(iter(found)) == "column_error"


@pytest.mark.parametrize(("party", "width", "words"), [(5, 1, "party"), (0, 2, "shape")])
def test_columns_that_do_not_exist_are_refused(party, width, words):
    evidence = PersonColumns(np.zeros((4, width)), party, np.arange(4), SETTING)
    with pytest.raises(ValueError, match=words):
        score_person_columns(CELL, evidence, PEOPLE)


@pytest.mark.parametrize(("scores", "people", "words"), [([[1.0]] * 2, (0, 3), "class"), ([[1.0, 0]], (4,), "people")])
def test_labels_of_other_people_or_classes_are_refused(scores, people, words):
    with pytest.raises(ValueError, match=words):
        rows(scores, people)
