"""Every mutant leaks what its bug predicts, and its correct version what its claim allows: by closed forms."""

import math

import numpy as np
import pytest
from fedassay.defenses.controls.mechanisms import randomised_response
from fedassay.suites.config.part_listing import mechanism_faults
from scipy import stats

N = 200_000


def built(name):
    return mechanism_faults()[name].load()().mutant()


def drawn(sample, arm, n=N, seed=0):
    return sample(arm, n, np.random.default_rng([seed, arm]))


@pytest.mark.parametrize("name", mechanism_faults())
def test_both_versions_give_independent_trials_of_one_shape_and_finite_scores(name):
    mutant = built(name)
    for sample in (mutant.correct, mutant.broken):
        for arm in (0, 1):
            outputs = drawn(sample, arm, n=500)
            assert len(outputs) == 500
            np.testing.assert_array_equal(outputs, drawn(sample, arm, n=500))
            for score in mutant.scores:
                assert score(outputs).shape == (500,)
                assert np.isfinite(score(outputs)).all()


def test_bits_are_kept_with_the_chance_that_their_epsilon_gives():
    kept = randomised_response(np.ones(N), epsilon=1.0, rng=np.random.default_rng(0)).mean()
    # Five standard errors: wrong once in a million.
    assert kept == pytest.approx(math.e / (1 + math.e), abs=5 * math.sqrt(0.2 / N))


def test_a_domain_off_by_one_leaks_the_logarithm_of_three_halves_more():
    mutant = built("domain_off_by_one")
    for sample, ratio in ((mutant.correct, math.e), (mutant.broken, math.e * 3 / 2)):
        truth, lie = ((drawn(sample, arm) == 1).mean() for arm in (1, 0))
        assert truth / lie == pytest.approx(ratio, rel=0.03)


def test_coordinates_at_the_full_budget_leak_it_eight_times():
    mutant = built("budget_per_coordinate")
    for sample, epsilon in ((mutant.correct, 2.0), (mutant.broken, 16.0)):
        flipped = 1 - drawn(sample, 1).mean()
        assert 8 * math.log((1 - flipped) / flipped) == pytest.approx(epsilon, rel=0.03)


def test_a_budget_that_was_not_taken_off_leaks_a_fifth_more():
    mutant = built("unspent_budget")
    (score,) = mutant.scores
    for sample, least, most in ((mutant.correct, 0.9, 1.0), (mutant.broken, 1.17, 1.23)):
        truth, lie = (score(drawn(sample, arm)).mean() for arm in (1, 0))
        assert least <= math.log(truth / lie) <= most


def test_a_budget_renewed_ten_times_has_a_tenth_of_the_noise():
    mutant = built("budget_every_round")
    spreads = [drawn(sample, 1, n=20_000).std() for sample in (mutant.correct, mutant.broken)]
    assert spreads[0] == pytest.approx(20 * math.sqrt(2), rel=0.02)
    assert spreads[1] == pytest.approx(2 * math.sqrt(2), rel=0.02)


@pytest.mark.parametrize(("name", "share"), [("lost_shares", math.sqrt(20 / 40)), ("thin_shares", math.sqrt(30 / 100))])
def test_missing_shares_leave_so_much_of_the_noise(name, share):
    mutant = built(name)
    claimed = 1 / mutant.claim.curve.mu
    for sample, left in ((mutant.correct, 1.0), (mutant.broken, share)):
        assert drawn(sample, 0).std() == pytest.approx(claimed * left, rel=0.01)
        assert drawn(sample, 1).mean() == pytest.approx(1.0, abs=0.03)


def test_noise_that_is_cut_never_passes_the_cut():
    mutant, beyond = built("clipped_noise"), 2 / built("clipped_noise").claim.curve.mu + 1e-9
    assert (drawn(mutant.broken, 0) > beyond).sum() == 0
    expected = stats.norm.sf(2 - mutant.claim.curve.mu)
    assert (drawn(mutant.broken, 1) > beyond).mean() == pytest.approx(expected, rel=0.03)
    assert (drawn(mutant.correct, 0) > beyond).mean() == pytest.approx(stats.norm.sf(2), rel=0.05)


def test_a_unit_moves_a_fixed_lot_by_twice_the_clip_norm_and_a_poisson_lot_by_once():
    mutant = built("fixed_lots")
    for sample, moved in ((mutant.correct, 1.0), (mutant.broken, 2.0)):
        means = [drawn(sample, arm, n=50_000).mean() for arm in (0, 1)]
        assert means[1] - means[0] == pytest.approx(0.1 * moved, abs=0.012)


def test_a_sample_stands_in_one_lot_of_a_shuffled_epoch_and_in_about_one_of_a_poisson_one():
    mutant = built("shuffled_epochs")
    # Sums less the noise's variance: one place of twenty moved by 2 - 0 from the others' mean of -5.
    outputs = drawn(mutant.broken, 1, n=50_000)
    assert (outputs + 5).sum(1).mean() == pytest.approx(2.0, abs=0.06)
    assert (outputs + 5).sum(1).var() == pytest.approx(20 * 0.25, rel=0.05)
    # Poisson lots vary in size: 100 samples at rate 1 / 20, each a coin.
    spread = drawn(mutant.correct, 1, n=50_000).sum(1).var()
    assert spread == pytest.approx(20 * (0.25 + 100 * 0.05 * 0.95), rel=0.05)


def test_the_shown_lots_are_those_of_the_unit_and_the_correct_version_shows_none():
    mutant = built("visible_lots")
    assert drawn(mutant.correct, 1, n=5000)[..., 1].sum() == 0
    assert drawn(mutant.broken, 0, n=5000)[..., 1].sum() == 0
    assert drawn(mutant.broken, 1, n=5000)[..., 1].mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.simulations
@pytest.mark.parametrize(("name", "epsilon0"), [("unshuffled_reports", 2.0), ("open_budgets", 2.0)])
def test_a_report_that_can_be_found_leaks_its_local_epsilon(name, epsilon0):
    mutant = built(name)
    (score,) = mutant.scores
    ones = [score(drawn(mutant.broken, arm, n=20_000)).mean() for arm in (0, 1)]
    truth = 1 / (1 + math.exp(-epsilon0))
    assert ones == pytest.approx([1 - truth, truth], abs=0.012)
    hidden = [score(drawn(mutant.correct, arm, n=20_000)).mean() for arm in (0, 1)]
    # Among 200 reports the found one is the unit's once in 200.
    assert hidden[1] - hidden[0] == pytest.approx((2 * truth - 1) / 200, abs=0.02)


def test_single_precision_reveals_one_from_zero_by_bits_that_the_grid_has_not():
    mutant = built("float_laplace")
    (score,) = mutant.scores
    hits = {
        (version, arm): score(drawn(getattr(mutant, version), arm)).mean()
        for version in ("correct", "broken")
        for arm in (0, 1)
    }
    # Laplace mass within 2^-5 of 0, from 0 and from 1.
    near = [math.exp(-abs(arm)) * 2.0**-5 for arm in (0, 1)]
    assert hits["broken", 1] == pytest.approx(near[1], rel=0.05)
    assert hits["broken", 0] < near[0] / 10
    assert hits["correct", 1] == pytest.approx(near[1], rel=0.07)
    assert hits["correct", 0] == pytest.approx(near[0], rel=0.07)
