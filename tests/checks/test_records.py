"""Neighbouring data sets differ by one unit, and hold extreme, rare and equal records."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.checks.records import (
    CONTENTS,
    changed_sets,
    exact_pairs,
    extreme_rows,
    few_records,
    unit_rows,
    unit_words,
)
from fedassay.fl.data.dataset import Dataset


def claim(unit="sample", adjacency="replace_one"):
    return Claim.stated(epsilon=1.0, delta=1e-5, unit=unit, adjacency=adjacency)


def records(rows, **facts):
    rng = np.random.default_rng(1)
    images = torch.from_numpy(rng.random((36, 1, 1 if rows else 2, 3)).astype(np.float32))
    labels = torch.tensor([0, 1] * 15 + [0] * 6)
    return Dataset.of_parts("r", (images[:30], labels[:30]), (images[30:], labels[30:]), classes=3, rows=rows, **facts)


def different(one, other):
    images = (one.train_images != other.train_images).flatten(1).any(1)
    return (images | (one.train_labels != other.train_labels)).nonzero().flatten().tolist()


@pytest.mark.parametrize("rows", [False, True])
def test_only_the_unit_differs(rows):
    data, unit = records(rows), torch.tensor([4])
    found = list(changed_sets(claim(), data, unit, seed=0))
    assert len(found) == len(CONTENTS)
    for pair in found:
        assert pair.without is data
        assert different(pair.within, data) == [4]
        assert pair.words.startswith("record 4 replaced by one ")


def test_images_stay_in_their_range_and_rows_of_a_table_lie_far_beyond_it():
    images, table = (next(changed_sets(claim(), records(rows), torch.tensor([4]), 0)).within for rows in (False, True))
    assert images.train_images[4].unique().tolist() == [1.0]
    assert float(table.train_images[4].min()) > 100 * float(records(True).train_images.max())


def test_another_label_is_the_rarest_one_also_if_no_record_has_it():
    found = [pair.within.train_labels[4] for pair in changed_sets(claim(), records(True), torch.tensor([4]), 0)]
    assert int(found[[kind for _, *kind in CONTENTS].index(["own", "other"])]) == 2


def test_pairs_are_neighbours_by_the_adjacency():
    data, unit = records(True), torch.tensor([4])
    replaced = list(exact_pairs(claim(), data, unit, 0, removes=True))
    assert {(pair.apart, pair.removed) for pair in replaced} == {(1, False)}
    removed = list(exact_pairs(claim(adjacency="add_remove"), data, unit, 0, removes=True))
    assert {(pair.apart, pair.removed) for pair in removed} == {(1, True)}
    for pair in removed:
        left = torch.cat([pair.within.train_images[:4], pair.within.train_images[5:]])
        assert torch.equal(pair.without.train_images, left)
    two_steps = list(exact_pairs(claim(adjacency="add_remove"), data, unit, 0, removes=False))
    assert {(pair.apart, pair.removed) for pair in two_steps} == {(2, False)}


def test_a_unit_is_a_record_the_records_of_an_owner_or_those_of_a_client():
    held, owned = torch.tensor([3, 8]), records(True, train_owners=torch.arange(30) // 5)
    assert unit_rows(claim(), owned, held).tolist() == [3]
    assert unit_rows(claim("client"), owned, held).tolist() == [3, 8]
    assert unit_rows(claim("user"), owned, held).tolist() == [0, 1, 2, 3, 4]
    assert unit_words(claim("user"), torch.arange(5)) == "the user of record 0 (5 records)"
    with pytest.raises(ValueError, match="it is not known which records belong to one user"):
        unit_rows(claim("user"), records(True), held)


def test_few_records_hold_each_label_and_extreme_rows_the_farthest_record():
    data = records(True)
    assert sorted(few_records(data, 6).train_labels.tolist()) == [0, 0, 0, 1, 1, 1]
    assert few_records(data, 30) is data
    images = data.train_images.clone()
    images[17] = 50.0
    far = Dataset.of_parts("f", (images, data.train_labels), (data.test_images, data.test_labels), classes=3, rows=True)
    assert 17 in extreme_rows(far, torch.tensor([2]), 4).tolist()
    assert int(extreme_rows(far, torch.tensor([2]), 4)[0]) == 2


def test_masks_of_strokes_follow_from_the_changed_images():
    images = torch.zeros(4, 1, 8, 8)
    data = Dataset.of_parts("s", (images, torch.arange(4) % 2), (images, torch.arange(4) % 2), classes=2, strokes=True)
    changed = next(changed_sets(claim(), data, torch.tensor([1]), 0)).within
    assert changed.train_masks.any(2).any(1).tolist() == [False, True, False, False]


def test_a_record_may_equal_a_public_row_and_one_that_is_near():
    data, unit = records(True), torch.tensor([4])
    kinds = [kind for _, *kind in CONTENTS]
    found = [pair.within for pair in exact_pairs(claim(), data, unit, 0, removes=True, near=torch.tensor([4, 7, 9]))]
    public, twin = found[kinds.index(["public", "other"])], found[kinds.index(["another", "other"])]
    assert torch.equal(public.train_images[4], data.test_images[0])
    # Of another label where there is one: row 4 has label 0.
    assert torch.equal(twin.train_images[4], data.train_images[9])
    assert int(twin.train_labels[4]) == 2
