"""Tables of utility by class and client, and of bytes: their numbers, and nothing where nothing was stored."""

import pytest
from fedassay.reports.tables.numerals import data_size
from fedassay.reports.tables.pooled_rows import pooled_utility
from fedassay.reports.tables.printed import spread_table, traffic_table, utility_table

SPREAD = {"class": (0.1, 0.6, 0.2), "client": (0.3, 0.7, 0.05)}
BYTES = {"up": (204.0, 816.0, 16320.0), "down": (204.0, 1020.0, 20400.0)}


@pytest.fixture
def stored(run_maker):
    """(defense, metric) -> rows of one training as a run stores them."""

    def add(defense, metric="accuracy", **fields):
        run_maker.accuracy_row(defense=defense, metric=metric, value=0.6, **fields)
        for group, values in SPREAD.items():
            for part, value in zip(("worst", "mean", "std"), values, strict=True):
                run_maker.accuracy_row(defense=defense, metric=f"{group}_{metric}_{part}", value=value, **fields)
        for way, values in BYTES.items():
            for part, value in zip(("client", "round", "total"), values, strict=True):
                run_maker.accuracy_row(defense=defense, metric=f"bytes_{way}_{part}", value=value, **fields)

    return add


def test_spread_and_bytes_have_one_row_a_defense_and_are_not_in_the_table_of_utility(run_maker, stored):
    stored("none")
    stored("no_clip", control=True)
    rows = pooled_utility(run_maker.write())
    assert [row[:2] for row in utility_table(rows).rows] == [("none", "accuracy"), ("no_clip", "accuracy")]
    spread = spread_table(rows)
    assert spread.rows[0] == ("none", "accuracy", "0.100", "0.600", "0.200", "0.300", "0.700", "0.050")
    assert spread.headers[2:5] == ("worst class", "mean of classes", "std of classes")
    assert "not released" in spread.note
    assert spread.note.startswith("Accuracy of the final model")
    traffic = traffic_table(rows)
    assert traffic.rows[1] == ("no_clip (control)", "204 B", "816 B", "16.3 kB", "204 B", "1.02 kB", "20.4 kB")


def test_a_segmentation_has_iou_and_a_missing_value_is_a_dash(run_maker, stored):
    stored("none", "iou")
    run_maker.accuracy_row(defense="dp_sgd", metric="class_iou_worst", status="skipped", reason="not defined")
    rows = pooled_utility(run_maker.write())
    spread = spread_table(rows)
    assert spread.rows[1] == ("dp_sgd", "IoU", *["–"] * 6)
    assert spread.note.startswith("Iou") is False
    assert "the pixels to find" in spread.note
    assert [row[0] for row in traffic_table(rows).rows] == ["none"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (204, "204 B"),
        (999.6, "1.00 kB"),
        (16_320, "16.3 kB"),
        (999_600, "1.00 MB"),
        (5.5e15, "5500 TB"),
        (None, "–"),
    ],
)
def test_bytes_have_three_digits_and_a_unit(size, words):
    assert data_size(size) == words
