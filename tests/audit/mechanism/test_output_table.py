"""Tables of finite output spaces: frequencies, keys of rows, when there are too many outputs."""

import math

import numpy as np
import pytest
from fedassay.audit.mechanism.scores import row_keys, tabulate


def test_the_ratios_by_hand():
    # Half a count more each: (2.5, 1.5, .5) of 4.5 against (.5, 1.5, 3.5) of 5.5.
    table = tabulate(np.array([0, 0, 7]), np.array([7, 9, 9, 9]))
    assert str(table) == "likelihood ratio of 3 outputs"
    expected = [math.log(member / 4.5 / (other / 5.5)) for member, other in ((2.5, 0.5), (1.5, 1.5), (0.5, 3.5))]
    np.testing.assert_allclose(table.score(np.array([0, 7, 9])), expected)
    np.testing.assert_allclose(table.score(np.array([[9], [8]])), [expected[2], 0])


@pytest.mark.parametrize(
    "outputs",
    [
        np.array(["a", "b", "ab", ""]),
        np.array([["a", "b"], ["b", "a"], ["ab", ""], ["", "ab"]]),
        np.stack(np.meshgrid(*[np.arange(6)] * 4), axis=-1).reshape(-1, 4),
        np.stack(np.meshgrid(*[[-0.5, 0.25, 1e-300]] * 5), axis=-1).reshape(-1, 5),
        np.arange(100),
        np.eye(40, dtype=bool),
        2**60 + np.arange(100),
        np.iinfo(np.int64).min + np.arange(100),
        np.uint64(2**63) + np.arange(200, dtype=np.uint64).reshape(100, 2),
    ],
    ids=["words", "pairs of words", "whole numbers", "fractions", "scalars", "bits", "large", "negative", "unsigned"],
)
def test_different_outputs_have_different_keys(outputs):
    keys = row_keys(outputs)
    assert keys.shape == (len(outputs),)
    assert len(np.unique(keys)) == len(outputs)
    np.testing.assert_array_equal(row_keys(outputs[::-1]), keys[::-1])


def test_equal_outputs_have_one_key_whatever_their_type():
    np.testing.assert_array_equal(row_keys(np.array([0.0, -0.0, 3.0])), row_keys(np.array([0, 0, 3])))
    np.testing.assert_array_equal(row_keys(np.array([2.0**60, -(2.0**63)])), row_keys(np.array([2**60, -(2**63)])))
    np.testing.assert_array_equal(row_keys(np.array([True, False])), row_keys(np.array([1, 0], dtype=np.int8)))
    np.testing.assert_array_equal(row_keys(np.array(["a", "bcd"])), row_keys(np.array(["a", "bcd"], dtype="U9")))


def test_outputs_that_are_nearly_all_different_make_no_table():
    rng = np.random.default_rng(0)
    assert tabulate(rng.random(1000), rng.random(1000)) is None
    assert tabulate(np.arange(20_000) % 1025, np.zeros(20_000)) is None
    assert tabulate(np.arange(20_000) % 1024, np.zeros(20_000)) is not None
