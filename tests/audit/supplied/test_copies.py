"""Scores given twice and rows that are repeated are refused; ties that scores on a grid have are not."""

from itertools import product

import numpy as np
import pytest
from fedassay.audit.evidence import Design
from fedassay.audit.supplied.given import _equal_by_chance, check_copies, remark

BOTH = pytest.mark.parametrize("design", [Design.INDEPENDENT, Design.ONE_RUN])


def normal(n, seed=0):
    return np.random.default_rng(seed).normal(size=n)


@BOTH
@pytest.mark.parametrize("order", ["same", "sorted", "permuted", "rows"])
def test_one_set_of_scores_for_both_sides_is_refused(order, design):
    member = normal(200)
    other = {"same": member, "sorted": np.sort(member), "permuted": np.random.default_rng(1).permutation(member)}
    sides = (np.stack([member, member**2], 1),) * 2 if order == "rows" else (member, other[order])
    with pytest.raises(ValueError, match="members and non-members have the same 200 scores"):
        check_copies(*sides, design=design)


@pytest.mark.parametrize("part", [slice(0, 100), slice(0, 400, 2)])
def test_scores_of_one_side_that_are_part_of_the_other_are_refused(part):
    with pytest.raises(ValueError, match="00 scores of members are exactly those of non-members"):
        check_copies(normal(400), np.concatenate([normal(400)[part], normal(50, 3)]), design=Design.INDEPENDENT)


@pytest.mark.parametrize(("times", "words"), [(2, "occurs 2 times"), (5, "occurs 5 times"), (6, "occurs 6 times")])
def test_rows_that_are_repeated_in_blocks_are_refused(times, words):
    with pytest.raises(ValueError, match=words):
        check_copies(np.tile(normal(50), times), normal(300, 1), design=Design.INDEPENDENT)
    with pytest.raises(ValueError, match=f"non-members {words}.*give one row of each canary"):
        check_copies(normal(300, 1), np.repeat(normal(50), times), design=Design.ONE_RUN)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(size=n),
        lambda rng, n: rng.normal(size=n).round(1),
        lambda rng, n: rng.normal(size=n).astype(np.float16),
        lambda rng, n: rng.integers(0, 2, n),
        lambda rng, n: rng.integers(0, 3, n),
        lambda rng, n: np.exp(rng.integers(0, 40, n)),
        lambda rng, n: np.maximum(rng.normal(size=n), 0),
        lambda rng, n: np.zeros(n),
    ],
)
def test_ties_of_exchangeable_scores_are_allowed(draw):
    rng = np.random.default_rng(0)
    for n, one, other in product((1, 2, 30, 400), (1, 2), (1, 2)):
        for _ in range(5):
            member, nonmember = draw(rng, n * one), draw(rng, n * other)
            check_copies(np.asarray(member, float), np.asarray(nonmember, float), design=Design.INDEPENDENT)


def test_outputs_may_be_texts_and_large_rows():
    words = np.array([f"w{at}" for at in range(60)])
    with pytest.raises(ValueError, match="the same 60 scores"):
        check_copies(words, words[::-1], design=Design.INDEPENDENT)
    check_copies(words, np.char.add(words, "x"), design=Design.INDEPENDENT)
    models = normal(60 * 1000).reshape(60, 10, 100)
    with pytest.raises(ValueError, match="the same 30 scores"):
        check_copies(models[:30], models[:30][::-1], design=Design.INDEPENDENT)
    check_copies(models[:30], models[30:], design=Design.INDEPENDENT)


def test_the_chance_of_equal_sides_is_that_of_an_enumeration():
    # Of the 6 ways to split {0, 0, 1, 1} into two sides, 4 give both sides a 0 and a 1.
    sides = np.array([0, 1]), np.array([1, 0])
    assert np.exp(_equal_by_chance(*sides, np.array([1, 1]), ordered=True)) == pytest.approx(4 / 6)
    # The values 0, 1, 0 stand in the same one of three orders as well: 9 of 20 splits, one order of 3.
    same = np.array([0, 1, 0]), np.array([0, 1, 0])
    assert np.exp(_equal_by_chance(*same, np.array([2, 1]), ordered=True)) == pytest.approx(6 * 2 / 20 / 3)


def test_two_values_that_separate_are_remarked_and_others_are_not():
    assert "computed without the truth" in remark(np.ones(9), np.zeros(9))
    assert not remark(np.ones(9), np.ones(9)) + remark(np.ones(9), np.r_[0.0, np.ones(8)])
