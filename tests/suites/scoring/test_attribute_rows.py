"""Rows of attribute inference, by hand."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import AttributeScores, Design, Setting
from fedassay.audit.observer import UPLOADS
from fedassay.fl.candidates import Column, PlantedRecords, plant_candidates
from fedassay.suites.scoring.attribute_rows import score_attributes
from toy_federation import toy_task

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=3, design=Design.CLUSTERED
)


class Kept:
    """A cell and a store that keep what they are given."""

    cell_id = "cell"

    def record(self, **fields):
        return fields

    def save_arrays(self, cell_id, name, arrays):
        self.arrays = arrays
        return name


@pytest.fixture
def planted():
    task = toy_task((4, 4), outsiders=8)
    for images in (task.images, task.outsider_images, task.test_images):
        images[:, 0, 0, 0] = (images[:, 0, 0, 0] > 0.4).float()
    candidates = plant_candidates(task, count=3, clients=(0, 1), rng=np.random.default_rng(2))
    return task, PlantedRecords.of(candidates, Column.of(task.test_images, task.columns, 0))


def rows_of(planted, values):
    kept = Kept()
    rows = score_attributes(kept, AttributeScores(values, SETTING), planted[1], planted[0], kept)
    return {row["metric"]: row for row in rows}, kept.arrays


def guesses(planted, right):
    """Scores of two values whose guess is true where ``right``."""
    value = np.tile(planted.value, len(right) // len(planted.value))
    return np.eye(2)[np.where(right, value, 1 - value)]


def test_members_count_at_their_own_client_and_others_once_each(planted):
    """Client 0's rows are right for its first two members, client 1's for none; of six others each at one of two."""
    _, truth = planted
    holder = truth.records.holder
    right = np.zeros((2, 12), dtype=bool)
    right[0, np.flatnonzero(holder == 0)[:2]] = True
    right[0, np.flatnonzero(holder == 1)] = True  # Of no account: another client's record.
    right[1, holder < 0] = True
    rows, arrays = rows_of(planted, guesses(truth, right.reshape(-1)))
    assert rows["attribute_accuracy"]["value"] == pytest.approx(2 / 6)
    assert rows["attribute_accuracy"]["unit"] == "share of records, chance 0.5"
    assert rows["attribute_gain"]["value"] == pytest.approx(2 / 6 - 0.5)
    assert {row["n"] for row in rows.values()} == {6}
    assert (arrays["member"].sum(), len(arrays["member"])) == (6, 18)


def test_one_set_of_scores_counts_every_record_once(planted):
    _, truth = planted
    rows, _ = rows_of(planted, guesses(truth, truth.records.member))
    assert rows["attribute_accuracy"]["value"] == 1
    assert rows["attribute_gain"]["value"] == 1
    over = rows["attribute_over_imputation"]["value"]
    assert over == pytest.approx(1 - rows["attribute_imputed"]["value"])
    shares = planted[0].test_images[:, 0, 0, 0].mean()
    common = truth.value[truth.records.member] == int(shares > 0.5)
    assert rows["attribute_majority"]["value"] == pytest.approx(common.mean())


def test_equal_scores_are_chance_and_other_shapes_are_refused(planted):
    rows, _ = rows_of(planted, np.zeros((12, 2)))
    assert rows["attribute_accuracy"]["value"] == 0.5
    assert rows["attribute_gain"]["ci_low"] is None
    for wrong in (np.zeros((12, 3)), np.zeros((11, 2)), np.zeros((36, 2))):
        with pytest.raises(ValueError, match=r"attribute scores must have shape \(records, values\) = \(12, 2\)"):
            rows_of(planted, wrong)


def test_what_attacks_are_shown_does_not_depend_on_the_hidden_values():
    """The same records with the other value are shown equally."""
    task = toy_task((4, 4), outsiders=8)
    task.test_images[:, 0, 0, 0] = torch.linspace(0, 1, 9)
    shown = []
    for value in (0.0, 1.0):
        for images in (task.images, task.outsider_images):
            images[:, 0, 0, 0] = value
        candidates = plant_candidates(task, count=3, clients=(0, 1), rng=np.random.default_rng(2))
        shown.append(PlantedRecords.of(candidates, Column.of(task.test_images, task.columns, 0)).shown.images)
    assert torch.equal(*shown)
