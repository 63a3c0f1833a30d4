import math

import pytest
from fedassay.reports.reading.pooling import (
    Pooled,
    count_over_seeds,
    limits_of,
    mean_over_seeds,
    median_over_images,
    named_share,
)
from hypothesis import given
from hypothesis import strategies as st

_JACKKNIFE = "mean over 8 federations, 95 % t interval by a jackknife of 4 groups"


def test_an_interval_ends_where_the_metric_ends():
    free, cut = mean_over_seeds([0.5, 1.0, 0.9]), mean_over_seeds([0.5, 1.0, 0.9], limits=limits_of("r2"))
    assert free.high > 1
    assert (cut.low, cut.high, cut.value) == (free.low, 1, free.value)
    assert mean_over_seeds([1.0, 9.0, 9.0], limits=limits_of("mean_squared_error")).low == 0
    assert limits_of("mse") == (-math.inf, math.inf)


@pytest.mark.parametrize("values", [[0.49, 0.5, 0.51], [0.0, 0.0, 0.001], [1.0, 0.999, 1.0], [0.0, 1.0, 1.0]])
def test_the_interval_of_shares_holds_their_mean_and_stays_in_range(values):
    pooled, plain = mean_over_seeds(values, share=True), mean_over_seeds(values)
    assert 0 <= pooled.low < pooled.value < pooled.high <= 1
    assert ((pooled.low, pooled.high) == (plain.low, plain.high)) == (0 <= plain.low <= plain.high <= 1)


@pytest.mark.parametrize(
    ("values", "why"),
    [([0.7], "one seed"), ([0.7, 0.9], "2 seeds, no interval"), ([1.0, 1.0, 1.0], "all seeds have the same value")],
)
def test_values_that_allow_no_interval_get_none_and_say_why(values, why):
    pooled = mean_over_seeds(values)
    assert (pooled.low, pooled.high) == (None, None)
    assert pooled.method.startswith(why)


def test_the_bootstrap_of_five_images_reaches_both_ends():
    # The median of five draws from 1..5 is 1 with probability sum_{k>=3} C(5,k) .2^k .8^(5-k) = .058 > .025; so is 5.
    pooled = median_over_images([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (pooled.value, pooled.low, pooled.high) == (3.0, 1.0, 5.0)
    assert pooled.n == 5


def test_the_bootstrap_of_eleven_images_leaves_the_extremes_out():
    # P[median of eleven draws <= the second of eleven] = P[Bin(11, 2/11) >= 6] = .0072 < .025; <= the third: .051.
    pooled = median_over_images([float(value) for value in range(11)])
    assert (pooled.value, pooled.low, pooled.high) == (5.0, 2.0, 8.0)


def test_the_bootstrap_gives_the_same_interval_every_time():
    values = [11.3, 9.8, 12.1, 10.0, 8.7, 9.9]
    assert median_over_images(values) == median_over_images(values)


@pytest.mark.parametrize("pool", [mean_over_seeds, median_over_images])
@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_what_is_no_number_is_refused(pool, values):
    with pytest.raises(ValueError, match="finite numbers"):
        pool(values)


@pytest.mark.parametrize("metric", ["class_accuracy_worst", "client_iou_mean", "client_macro_f1_worst", "accuracy"])
def test_the_accuracy_of_the_worst_is_a_share_too(metric):
    assert named_share(metric)
    pooled = mean_over_seeds([0.0, 0.0, 0.6], share=named_share(metric))
    assert 0 <= pooled.low < pooled.value < pooled.high <= 1


def test_a_standard_deviation_over_classes_is_no_share():
    assert not named_share("class_accuracy_std")


@pytest.mark.parametrize("metric", ["loss", "class_accuracy_std", "mean_squared_error"])
def test_what_cannot_be_negative_has_no_interval_below_zero(metric):
    assert mean_over_seeds([0.1, 0.1, 5.0], limits=limits_of(metric)).low == 0


def test_equal_shares_of_all_seeds_have_the_exact_interval_of_their_counts():
    # 24 of 24: the lower end p solves p^24 = .025.
    found = count_over_seeds(24, 24, seeds=3, kind="uploads")
    assert (found.value, found.high, found.n) == (1.0, 1.0, 3)
    assert found.low == pytest.approx(0.025 ** (1 / 24))
    assert found.over == "24 uploads of all seeds"
    # 0 of 10: the upper end p solves (1 - p)^10 = .025.
    none = count_over_seeds(0, 10, seeds=2, kind="uploads")
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025**0.1))


def test_a_joint_interval_is_that_of_a_higher_level():
    values = [0.53, 0.54, 0.55]
    # Bonferroni for ten values: 99.5 % each; t intervals are widened exactly.
    wide, known = mean_over_seeds(values).joint(10), mean_over_seeds(values, level=0.995)
    assert (wide.low, wide.high) == pytest.approx((known.low, known.high))
    assert mean_over_seeds(values).joint(1) == mean_over_seeds(values)
    one = mean_over_seeds([0.5])
    assert one.joint(10) == one


def test_a_joint_interval_of_shares_is_that_of_their_scale_at_the_higher_level():
    # 4 of 24 in three seeds of 8: mean 1/6, standard error 1/24; t of 2 degrees at 1 - .05/12 is 10.886 (p = .0042).
    pooled = mean_over_seeds([0.25, 0.125, 0.125], share=True, limits=(0.0, 1.0))
    wide, half = pooled.joint(6), 10.886 / 24 / (1 / 6 * 5 / 6)
    ends = [1 / (1 + 5 * math.exp(half)), 1 / (1 + 5 * math.exp(-half))]
    assert [wide.low, wide.high] == pytest.approx(ends, rel=1e-3)
    # 0 of 10: the upper end p solves (1 - p)^10 = .025 / 6.
    none = count_over_seeds(0, 10, seeds=2, kind="uploads").joint(6)
    assert (none.low, none.high) == (0.0, pytest.approx(1 - (0.025 / 6) ** 0.1))


@given(st.lists(st.sampled_from([k / 8 for k in range(9)]), min_size=3, max_size=6), st.integers(1, 60))
def test_a_joint_interval_stays_in_range_and_holds_the_own_one(values, of):
    total = round(8 * sum(values))
    own = (mean_over_seeds(values, share=True), count_over_seeds(total, 8 * len(values), seeds=3, kind="uploads"))
    # A single run has its stored interval only, also one by the jackknife, whose quantile is that of its groups.
    single = [Pooled(value=0.9, low=0.7, high=0.99, n=1, limits=(0.0, 1.0), method=how) for how in ("", _JACKKNIFE)]
    for one in (*own, *single):
        if (wide := one.joint(of)).low is not None:
            assert 0 <= wide.low <= one.low <= one.value <= one.high <= wide.high <= 1
