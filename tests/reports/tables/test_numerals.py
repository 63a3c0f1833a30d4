import pytest
from fedassay.reports.reading.pooling import Pooled
from fedassay.reports.tables import numerals
from fedassay.reports.tables.printed import pooled_words
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


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="must have 2 entries, got 1"):
        Table(title="t", headers=("a", "b"), rows=(("x",),))
