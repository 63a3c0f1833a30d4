"""Models that are of no use, by hand: an answer that ignores its input is marked, and a model that learned is not."""

import pytest
from fedassay.reports.tables.pooled_rows import pooled_utility


def marked(run_maker, rows):
    for metric, value, n in rows:
        run_maker.accuracy_row(defense="mine", metric=metric, value=value, n=n)
    return {row.metric: row.useless for row in pooled_utility(run_maker.write())}


@pytest.mark.parametrize(
    ("accuracy", "by_class", "classes", "images", "words"),
    [
        (0.041, 0.05, 10, 450, "guessing, 0.100"),
        (0.1, 0.1, 10, 450, "guessing, 0.100"),
        # 54 of 450 are 12 %: a guess reaches as much with probability .095; 63 of 450 (14 %) with probability .004.
        (0.12, 0.12, 10, 450, "guessing, 0.100"),
        (0.14, 0.14, 10, 450, ""),
        (0.666, 0.6, 10, 450, ""),
        # Nine of ten images are of one class, which is all that the model ever names.
        (0.9, 0.5, 2, 450, "the same class"),
        (0.9, 0.7, 2, 450, ""),
        # Too few images to show more than guessing.
        (0.6, 0.6, 2, 10, "guessing, 0.500"),
    ],
)
def test_a_classifier_must_beat_guessing_and_the_largest_class(run_maker, accuracy, by_class, classes, images, words):
    found = marked(run_maker, [("accuracy", accuracy, images), ("class_accuracy_mean", by_class, classes)])
    assert found["accuracy"].endswith(words)
    assert bool(found["accuracy"]) == bool(words)
    assert found["class_accuracy_mean"] == ""


def test_without_the_number_of_classes_nothing_is_said(run_maker):
    assert marked(run_maker, [("accuracy", 0.01, 450)]) == {"accuracy": ""}


@pytest.mark.parametrize(("r2", "useless"), [(-0.2, True), (0.0, True), (0.1, False)])
def test_a_regression_must_beat_the_mean_of_the_labels(run_maker, r2, useless):
    assert bool(marked(run_maker, [("r2", r2, 100)])["r2"]) == useless
