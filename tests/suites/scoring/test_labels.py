"""Label scores: hand-computed, and the chance lines that a batch score must be read against."""

import numpy as np
import pytest
from fedassay.suites.scoring.label_rows import LabelScores, mean_interval, rate_interval, score_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def one_hot(labels: list[int], classes: int = 10) -> np.ndarray:
    return np.eye(classes)[labels]


def pooled(scores: LabelScores) -> float:
    """The fraction of labels that were counted correctly, over all samples of all client updates."""
    return float(np.average(scores.accuracy, weights=scores.sizes))


def test_one_sample_uploads_are_scored_by_the_share_of_right_labels() -> None:
    scores = score_labels(one_hot([3, 1, 4, 1]), one_hot([3, 1, 4, 5]))
    assert scores.exact.tolist() == [True, True, True, False]
    assert scores.exact.mean() == pooled(scores) == 0.75
    assert scores.chance_accuracy == pytest.approx(0.1)
    assert scores.over_chance.value == pytest.approx((0.75 - 0.1) / 0.9)
    assert scores.total_variation.mean() == 0.25


def test_a_batch_counts_each_label_as_often_as_it_is_there() -> None:
    """Guess 2, 1, 1, 0 of truth 3, 0, 1, 0: min is 2 + 0 + 1; equal counts (1 each) would have had 1 + 0 + 1 + 0."""
    scores = score_labels([[2, 1, 1, 0]], [[3, 0, 1, 0]])
    assert pooled(scores) == 0.75
    assert scores.chance_accuracy == 0.5
    assert scores.over_chance.value == pytest.approx(0.5)
    assert scores.total_variation.mean() == 0.25
    assert scores.exact.mean() == 0


def test_counts_and_classes_are_scored_class_by_class() -> None:
    """Guess 2, 1, 1, 0 of truth 3, 0, 1, 0: two of four counts are right; class 1 alone is wrongly said to be there."""
    scores = score_labels([[2, 1, 1, 0]], [[3, 0, 1, 0]])
    assert scores.counted.tolist() == [0.5]
    assert scores.existence.tolist() == [0.75]
    assert scores.count_error.tolist() == [0.5]


def test_an_interval_of_weighted_values_is_that_of_their_linear_approximation() -> None:
    """Equal weights: the t interval. 0, 1, 1 has deviation .577, error .333, t(2) 4.303."""
    plain = mean_interval([0.0, 1.0, 1.0])
    assert (plain.value, plain.low, plain.high) == pytest.approx((2 / 3, 2 / 3 - 1.4342, 2 / 3 + 1.4342), abs=1e-4)
    same = mean_interval([0.0, 1.0, 1.0], [2, 2, 2])
    assert (same.low, same.high) == (plain.low, plain.high)
    weighed = mean_interval([0.0, 1.0, 1.0], [1, 1, 2])
    error = np.std([0.75 * -0.75, 0.75 * 0.25, 1.5 * 0.25], ddof=1) / 3**0.5
    assert weighed.value == 0.75
    assert weighed.high == pytest.approx(0.75 + 4.302653 * error)


def test_one_value_or_equal_ones_give_no_interval() -> None:
    assert mean_interval([0.3]).low is None
    assert mean_interval([0.3, 0.3]).high is None


def test_a_rate_has_the_exact_binomial_interval() -> None:
    """8 of 10: .4439 to .9748 (Clopper and Pearson)."""
    found = rate_interval([True] * 8 + [False] * 2)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.4439, 0.9748), abs=1e-4)


def test_equal_counts_and_random_draws_already_score_high_on_a_batch_of_32() -> None:
    """Ten classes: .788 and .706 in expectation (Monte Carlo error here below .001)."""
    rng = np.random.default_rng(0)
    truth = rng.multinomial(32, np.full(10, 0.1), size=10_000)
    equal = score_labels(np.full((10_000, 10), 3.2), truth)
    assert pooled(equal) == pytest.approx(0.788, abs=0.002)
    assert equal.over_chance.value == pytest.approx(0, abs=1e-12)
    drawn = score_labels(rng.multinomial(32, np.full(10, 0.1), size=10_000), truth)
    assert pooled(drawn) == pytest.approx(0.706, abs=0.002)
    assert drawn.over_chance.value < 0


def test_where_equal_counts_are_the_truth_there_is_nothing_to_correct() -> None:
    assert score_labels([[2, 2]], [[2, 2]]).over_chance is None


@settings(derandomize=True, deadline=None)
@given(arrays(np.int64, (3, 5), elements=st.integers(0, 6)))
def test_with_the_right_totals_accuracy_and_total_variation_are_one_number(counts: np.ndarray) -> None:
    """sum min(a, b) = n - sum |a - b| / 2 where both sum to n."""
    counts[:, 0] += 1
    guess = np.roll(counts, 1, axis=1)
    scores = score_labels(guess, counts)
    np.testing.assert_allclose(scores.accuracy, 1 - scores.total_variation)


@pytest.mark.parametrize(
    ("counts", "truth", "message"),
    [
        ([[1, 0]], [[1, 0, 0]], "the same shape"),
        ([1, 0], [1, 0], r"must have shape \(n, classes\)"),
        ([[1, -1]], [[1, 0]], "counts must be finite and >= 0"),
        (
            [[1, 0]],
            [[0, 0]],
            r"truth must count at least one label for every client update, got none for updates \[0\]",
        ),
        ([[1, 0]], [[0.5, 0]], "whole numbers"),
    ],
)
def test_counts_that_cannot_be_scored_are_refused(counts: object, truth: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_labels(counts, truth)
