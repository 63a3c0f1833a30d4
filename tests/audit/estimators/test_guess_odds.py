"""The bound from guesses of inputs that coins chose: exact at the boundary, and close to the best that counts allow."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.estimators.counted import GuessCounts, guess_odds_of_counts, odds_low, ratio_low
from fedassay.audit.evidence import Design, Setting
from scipy.stats import binom

SETTING = Setting.claimed(Claim.stated(1.0))


def counts(in_as_in=0, in_as_out=0, out_as_in=0, out_as_out=0, n=1000, setting=SETTING):
    return GuessCounts(
        in_as_in=in_as_in,
        in_as_out=in_as_out,
        n1=n,
        out_as_in=out_as_in,
        out_as_out=out_as_out,
        n0=n,
        setting=setting,
    )


def test_ten_right_guesses_and_no_wrong_one_show_the_epsilon_at_which_they_have_probability_alpha():
    # (e^eps / (1 + e^eps))^10 = .1
    share = 0.1**0.1
    assert odds_low(10, 0, 0.1) == pytest.approx(math.log(share / (1 - share)))
    assert odds_low(0, 0, 0.1) == odds_low(3, 4, 0.1) == odds_low(0, 5, 0.1) == 0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("made", [7, 60, 400])
def test_at_the_boundary_the_chance_of_a_false_bound_is_at_most_alpha_by_exact_sums(epsilon, made):
    right = np.arange(made + 1)
    false = np.array([odds_low(int(k), made - int(k), 0.1) > epsilon for k in right])
    assert binom.pmf(right, made, 1 / (1 + math.exp(-epsilon)))[false].sum() <= 0.1


@pytest.mark.parametrize(("rare_in", "rare_out"), [(0.1, 0.1), (0.02, 0.15), (0.2, 0.0)])
def test_unequal_events_at_the_boundary_show_too_much_no_oftener_than_alpha(rare_in, rare_out, most_false_alarms):
    # Each event is e^epsilon times as likely on its input as on the other; in other outputs no guess is made.
    epsilon, repeats, rng = 0.7, 2000, np.random.default_rng(0)
    often = math.exp(epsilon)
    n1 = rng.binomial(400, 0.5, repeats)
    inside = rng.multinomial(n1, [often * rare_in, rare_out, 1 - often * rare_in - rare_out])
    outside = rng.multinomial(400 - n1, [rare_in, often * rare_out, 1 - rare_in - often * rare_out])
    right, wrong = inside[:, 0] + outside[:, 1], inside[:, 1] + outside[:, 0]
    false = sum(odds_low(int(k), int(w), 0.1) > epsilon for k, w in zip(right, wrong, strict=True))
    assert false <= most_false_alarms(repeats, 0.1)


def test_a_rare_event_on_either_side_shows_more_than_the_ratio_of_one_of_them():
    # All six bits of RAPPOR that differ, at a million runs per input: .2897 is the truth less 1.28 standard errors.
    n, high, low = 10**6, (41 / 80) ** 6, (39 / 80) ** 6
    k1, k0 = round(n * high), round(n * low)
    shown = odds_low(2 * k1, 2 * k0, 0.1)
    assert shown == pytest.approx(0.2897, abs=2e-4)
    assert shown > ratio_low(k1, n, k0, n, weight=k1 / k0, delta=0, alpha=0.1) + 0.004


def test_a_measurement_names_its_counts():
    found = guess_odds_of_counts(counts(300, 100, 100, 200), alpha=0.05, threshold=1.5, epsilon=0.5)
    assert (found.false_positives, found.false_negatives) == (100, 700)
    assert found.estimate == pytest.approx(math.log(500 / 200))
    assert found.epsilon_low == odds_low(500, 200, 0.05)
    assert found.ceiling == odds_low(2000, 0, 0.05) > 6
    assert found.detectable is not None


def test_wrong_counts_and_dependent_runs_are_refused():
    with pytest.raises(ValueError, match=r"guesses on the second input must be >= 0 .* got \(600, 500\) of 1000"):
        counts(600, 500)
    with pytest.raises(ValueError, match=r"guesses on the first input must be >= 0"):
        counts(out_as_in=-1)
    setting = replace(SETTING, design=Design.ONE_RUN)
    with pytest.raises(ValueError, match=r"guess_odds needs independent trials, .* got .* one_run"):
        guess_odds_of_counts(counts(1, setting=setting), alpha=0.05)
