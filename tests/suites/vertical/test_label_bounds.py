"""The largest accuracy of guesses of labels under label DP: closed forms, and what randomised response reaches."""

import math

import numpy as np
import pytest

best_accuracy = pytest.importorskip("fedassay.benchmarks.label_bounds").best_accuracy


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (10, 2.0), (10, 8.0)])
def test_equally_frequent_labels_have_the_closed_form(classes, epsilon):
    wanted = math.exp(epsilon) / (classes - 1 + math.exp(epsilon))
    assert best_accuracy(np.full(classes, 1 / classes), epsilon, 0.0) == pytest.approx(wanted)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_two_labels_are_guessed_best_by_the_release_or_by_the_share(epsilon):
    """Either the released label, or always the more frequent one."""
    wanted = max(0.76, math.exp(epsilon) / (1 + math.exp(epsilon)))
    assert best_accuracy(np.array([0.76, 0.24]), epsilon, 0.0) == pytest.approx(wanted)


def test_without_privacy_all_labels_are_known_and_delta_adds_to_what_is_known():
    shares = np.array([0.5, 0.3, 0.2])
    assert best_accuracy(shares, 60.0, 0.0) == pytest.approx(1.0)
    assert best_accuracy(shares, 1.0, 0.01) > best_accuracy(shares, 1.0, 0.0)
