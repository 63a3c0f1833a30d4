"""How numbers are printed, and tables of utility by class and client, and of bytes."""

import pytest
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.reports.reading.pooling import Pooled
from fedassay.reports.tables import numerals
from fedassay.reports.tables.numerals import data_size
from fedassay.reports.tables.pooled_rows import attack_grids, pooled_attacks, pooled_utility
from fedassay.reports.tables.printed import attack_table, pooled_words, spread_table, traffic_table, utility_table
from fedassay.reports.tables.table import Table


@pytest.mark.parametrize(
    ("epsilon", "printed"), [(0.999, "0.99"), (0.29, "0.29"), (2.3, "2.30"), (0.0, "0.00"), (None, "–")]
)
def test_a_lower_bound_is_rounded_down(epsilon, printed):
    assert numerals.lower_bound(epsilon) == printed


@pytest.mark.parametrize(
    ("epsilon", "printed"),
    [(0.003996, "0.00400"), (3.996, "4.00"), (9.996, "10.0"), (25.83, "25.8"), (1200.4, "1200"), (0.0, "0")],
)
def test_an_epsilon_of_any_size_has_three_significant_digits(epsilon, printed):
    assert numerals.significant(epsilon) == printed


def test_a_missing_number_is_a_dash_and_never_a_zero():
    assert {
        numerals.epsilon(None),
        numerals.significant(None),
        numerals.count(None),
        numerals.metric_value("auc", None),
    } == {"–"}


def test_metrics_have_their_own_decimals_and_units():
    assert numerals.metric_value("psnr", 12.07) == "12.1"
    assert numerals.metric_value("mse", 0.0621) == "0.0621"
    assert numerals.metric("psnr").label == "PSNR, dB"
    assert numerals.metric("r_count_error").label == "r count error"


def test_a_pooled_value_is_printed_with_its_interval_and_sign():
    pooled = Pooled(value=-0.05, low=-0.06, high=-0.04, n=3, method="")
    assert pooled_words("accuracy", pooled, intervals=True, signed=True) == "−0.050 [−0.060, −0.040]"
    assert pooled_words("accuracy", pooled, intervals=False) == "−0.050"


def test_a_table_aligns_numbers_right_and_text_left():
    table = Table(title="t", headers=("name", "n"), rows=(("a", "5"), ("long", "100")), numeric=frozenset({1}))
    assert table.lines() == ["name    n", "----  ---", "a       5", "long  100"]


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


def test_the_table_of_attacks_marks_what_no_claim_of_the_defense_covers(run_maker, make_claim):
    run_maker.sign("mine", make_claim(observer=GLOBAL_MODELS))
    for defense in ("none", "mine"):
        for role, attack in (("attack", "tried"), ("null", "guess")):
            for observer in ("uploads", "global_models"):
                run_maker.row(defense=defense, role=role, attack=f"{attack}_{observer}", observer=observer, value=0.9)
    (grid,) = attack_grids(pooled_attacks(run_maker.write()))
    # One attack on one defense: of the server, whom its claim does not cover.
    table = attack_table(grid, grid.primary)
    marked = {row[0]: [text.endswith("*") for text in row[2:-1]] for row in table.rows}
    assert marked.pop("tried_uploads") == [False, True]
    assert {mark for row in marked.values() for mark in row} == {False}
    assert table.note.startswith("*: OUT OF SCOPE, the defense states claims, but none covers this attack")
    assert "(here: the server that observes individual updates and who takes part)" in table.note
