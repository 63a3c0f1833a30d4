"""Paired statistics: known answers, the level and power of the family, and values that allow no statistics."""

import math

import numpy as np
import pytest
from fedassay.reports.regression.comparison import ALPHA, CellOutcome, Change, holm, paired_change
from scipy import stats


def test_the_change_of_four_seeds_by_hand():
    # Differences .1, .2, .3, .2: mean .2, variance .02 / 3, standard error sqrt(.02 / 12).
    found = paired_change([0.5, 0.5, 0.5, 0.6], [0.6, 0.7, 0.8, 0.8], sign=1)
    error = math.sqrt(0.02 / 12)
    assert found.worse == pytest.approx(0.2)
    assert (found.base, found.new) == pytest.approx((0.525, 0.725))
    # t of 3 degrees of freedom: .95 quantile 2.353363.
    assert (found.low, found.high) == pytest.approx((0.2 - 2.353363 * error, 0.2 + 2.353363 * error), abs=1e-6)
    assert found.p == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3, 0.2], 0, alternative="greater").pvalue)


def test_a_lower_value_is_worse_where_the_sign_states_so():
    one, two = [0.9, 0.8, 0.85], [0.7, 0.65, 0.6]
    lower, higher = paired_change(one, two, sign=-1), paired_change(one, two, sign=1)
    assert lower.worse == pytest.approx(0.2)
    assert higher.worse == pytest.approx(-0.2)
    assert lower.p + higher.p == pytest.approx(1)
    assert lower.correlation == higher.correlation == pytest.approx(np.corrcoef(one, two)[0, 1])


def test_one_seed_is_inconclusive_and_states_so():
    found = paired_change([0.5], [0.9], sign=1)
    assert (found.low, found.high, found.p, found.outcome(0.05)) == (None, None, 1.0, CellOutcome.INCONCLUSIVE)
    assert found.why(0.05) == "there is one seed only: without variation over seeds, a change cannot be tested"
    assert paired_change([0.5], [0.5], sign=1).outcome(0.05) is CellOutcome.INCONCLUSIVE


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_no_change_at_all_passes(seeds):
    values = np.random.default_rng(0).normal(size=seeds)
    found = paired_change(values, values, sign=1)
    assert (found.worse, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert found.outcome(0.001) is CellOutcome.PASS


@pytest.mark.parametrize(
    ("seeds", "p", "outcome"), [(3, 1 / 8, CellOutcome.INCONCLUSIVE), (5, 1 / 32, CellOutcome.FAIL)]
)
def test_the_same_step_in_every_seed_has_the_chance_of_its_signs_not_none(seeds, p, outcome):
    # In tenths, whose differences are equal but for rounding: a t test would call them certain.
    base = np.arange(seeds) / 10
    (found,) = holm([paired_change(base, base + 0.1, sign=1)])
    assert found.p == p
    assert found.outcome(0.15) is outcome
    assert (found.high is None) == (seeds == 3)
    if seeds == 3:
        assert (
            found.why(0.15)
            == "all 3 seeds changed by the same amount: without variation over seeds, a bound needs at least 5 seeds"
        )


def test_the_same_gain_in_five_seeds_passes_and_a_tiny_loss_is_no_failure():
    base = np.arange(5) / 10
    assert paired_change(base, base - 0.1, sign=1).outcome(0.05) is CellOutcome.PASS
    noisy = base + 1e-4 + 1e-6 * np.arange(5)
    (found,) = holm([paired_change(base, noisy, sign=1)])
    assert found.p_family < 1e-6
    assert found.outcome(0.05) is CellOutcome.PASS


def test_rounding_does_not_make_a_variance():
    base = np.array([0.1, 0.2, 0.3])
    assert len(set(base + 0.1 - base)) > 1
    assert paired_change(base, base + 0.1, sign=1).p == 1 / 8


def test_outcomes_at_their_edges():
    def change(worse, high, p):
        return Change(seeds=8, base=0, new=0, worse=worse, low=worse, high=high, p=p, p_family=p, correlation=None)

    assert (
        change(0.06, 0.09, 0.05).outcome(0.1) is CellOutcome.FAIL
    )  # Significant and above half, though below the margin.
    assert change(0.05, 0.09, 0.05).outcome(0.1) is CellOutcome.PASS  # Half the margin is not more than half of it.
    assert change(0.06, 0.09, 0.051).outcome(0.1) is CellOutcome.PASS
    assert change(0.06, 0.1, 0.051).outcome(0.1) is CellOutcome.INCONCLUSIVE
    assert change(0.3, 0.9, 0.051).outcome(0.1) is CellOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("base", "new", "sign", "says"),
    [
        ([], [], 1, "arrays of the same length >= 1"),
        ([1.0], [1.0, 2.0], 1, "arrays of the same length >= 1"),
        ([math.nan, 1.0], [1.0, 2.0], 1, "finite numbers"),
        ([1.0, 2.0], [math.inf, 2.0], 1, "finite numbers"),
        ([1.0], [2.0], 0, "sign must be 1 if a higher value is worse, .* got 0"),
    ],
)
def test_what_is_no_pair_of_rows_is_refused(base, new, sign, says):
    with pytest.raises(ValueError, match=says):
        paired_change(base, new, sign=sign)


def test_holm_by_hand_keeps_the_order_of_the_cells():
    # Sorted .01, .02, .03, .04: times 4, 3, 2, 1 gives .04, .06, .06, .04, and never less than the one before.
    changes = [
        Change(seeds=8, base=0, new=0, worse=0, low=0, high=0, p=p, correlation=None) for p in (0.04, 0.01, 0.03, 0.02)
    ]
    assert [change.p_family for change in holm(changes)] == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([]) == []


REPEATS, CELLS, SEEDS, CORRELATION, MARGIN = 1000, 24, 8, 0.8, 0.76
"""Margin in standard deviations of one run's values."""


def simulated(worse: float, repeats: int = REPEATS):
    """(base, new) of shape (repeats, cells, seeds): unit variance, correlated by seed, the first cell worse."""
    rng = np.random.default_rng(20260105)
    shared, one, two = rng.normal(size=(3, repeats, CELLS, SEEDS))
    base, new = (CORRELATION**0.5 * shared + (1 - CORRELATION) ** 0.5 * own for own in (one, two))
    new[:, 0] += worse
    return base, new


def failed(base, new):
    """(repeats, cells): which cells fail."""
    return np.array(
        [
            [
                change.outcome(MARGIN) is CellOutcome.FAIL
                for change in holm([paired_change(b, n, sign=1) for b, n in zip(bases, news, strict=True)])
            ]
            for bases, news in zip(base, new, strict=True)
        ]
    )


@pytest.mark.simulations
def test_false_alarms_stay_at_their_level_where_point_estimates_cry_wolf():
    base, new = simulated(worse=0)
    # Standard error .007: a true level of .05 exceeds .07 with chance .002.
    assert failed(base, new).any(1).mean() <= 0.07
    # Means of differences have variance 2 (1 - .8) / 8; each of 24 exceeds half the margin with chance .045.
    chance = 1 - stats.norm.cdf(MARGIN / 2 / (2 * (1 - CORRELATION) / SEEDS) ** 0.5) ** CELLS
    assert chance == pytest.approx(0.66, abs=0.01)
    by_points = ((new - base).mean(-1) > MARGIN / 2).any(1).mean()
    assert by_points == pytest.approx(chance, abs=0.06)


@pytest.mark.simulations
def test_one_cell_that_is_worse_by_one_and_a_half_deviations_is_found():
    # Of 400 repeats the standard error is .01; measured over many: .96.
    assert failed(*simulated(worse=1.5, repeats=400))[:, 0].mean() >= 0.9


def test_without_pairing_most_of_it_is_missed():
    # The power is the pairing's: the same two runs with the seeds of one shifted are as good as unpaired.
    base, new = simulated(worse=1.5, repeats=200)
    assert failed(np.roll(base, 1, axis=-1), new)[:, 0].mean() < 0.4


def test_the_upper_end_covers_in_nineteen_of_twenty():
    base, new = simulated(worse=0)
    highs = [paired_change(b[0], n[0], sign=1).high for b, n in zip(base, new, strict=True)]
    assert np.mean([high >= 0 for high in highs]) == pytest.approx(1 - ALPHA, abs=0.02)


def test_labels_of_eight_uploads_do_not_cry_wolf_over_three_seeds():
    # Equal steps in all three seeds are no rarity among 24 cells; a t test gives them p = 0, in every fourth run.
    base, new = np.random.default_rng(1).binomial(8, 0.9, (2, 100, CELLS, 3)) / 8
    alarms = [
        any(
            change.outcome(0.1) is CellOutcome.FAIL
            for change in holm([paired_change(b, n, sign=1) for b, n in zip(bases, news, strict=True)])
        )
        for bases, news in zip(base, new, strict=True)
    ]
    steps = new - base
    by_t = ((np.ptp(steps, axis=-1) == 0) & (steps[..., 0] > 0.05)).any(1)
    assert np.mean(alarms) <= 0.07
    # Two binomials of 8 and .9 are one apart with chance .225, so three times with .0114, two apart with .0005.
    assert by_t.mean() == pytest.approx(1 - (1 - 0.0119) ** CELLS, abs=0.1)
