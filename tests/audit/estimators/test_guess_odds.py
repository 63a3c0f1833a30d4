"""The bound from guesses of inputs that coins chose: valid at the boundary, whatever the delta and the number of scores
on each side, above two bounds on rates; its rule's thresholds are the best of all, and its counts follow them.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.calibration import known_mechanism_for, setting
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.event_ratio import ratio_low
from fedassay.audit.estimators.guess_odds import (
    EventGuesses,
    GuessCounts,
    GuessRule,
    best_rule,
    coin_runs,
    expected_bound,
    guess_odds,
    guess_odds_of_counts,
    odds_low,
    raised_rate,
    selection_bias,
)
from fedassay.audit.evidence import Design, MembershipScores, Setting
from fedassay.audit.threshold import BonferroniThresholds, CountingPlan, FixedThreshold, SplitThreshold
from scipy.stats import binom

SETTING = Setting.claimed(Claim.stated(1.0))
INDEPENDENT = setting(Design.INDEPENDENT)
PLAN = CountingPlan(trials=100_000, delta=0.0, alpha=0.1, curve=None)
SPLIT = SplitThreshold(0.2)


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


def test_between_its_thresholds_no_guess_is_made():
    rule = GuessRule(high=2.0, low=-1.0)
    assert rule.guesses(np.array([3.0, 2.0, 0.0, -1.0, -5.0])) == EventGuesses(second=1, first=2)
    assert GuessRule(high=2.0, low=-math.inf).guesses(np.array([3.0, -9.0])) == EventGuesses(second=1, first=0)
    assert GuessRule(high=math.inf, low=2.0).threshold == 2.0
    with pytest.raises(ValueError, match=r"low must be <= high, got 3\.0 and 2\.0"):
        GuessRule(high=2.0, low=3.0)


def test_the_best_rule_has_the_largest_expected_bound_of_all_rules():
    rng = np.random.default_rng(0)
    member, nonmember = (rng.integers(0, 9, 3000) + rng.binomial(2, share, 3000) for share in (0.5, 0.2))
    rule, bound = best_rule(member.astype(float), nonmember.astype(float), PLAN)

    def rates(side, other):
        likely, rare = np.array([np.mean(side)]), np.array([np.mean(other)])
        return likely, raised_rate(likely, rare, 3000, selection_bias(likely, rare, 3000))

    # Raised apart, the two rare rates add up.
    every = [-math.inf, *np.arange(-0.5, 11), math.inf]
    naive = -math.inf
    for low, high in itertools.combinations_with_replacement(every, 2):
        often, raised = rates(member > high, nonmember > high)
        often_low, raised_low = rates(nonmember <= low, member <= low)
        shown = expected_bound(
            often + often_low,
            (raised if high < math.inf else 0.0) + (raised_low if low > -math.inf else 0.0),
            PLAN,
            fair_coins=True,
        )
        naive = max(naive, float(shown[0]))
    assert bound == pytest.approx(naive)
    assert rule.low < rule.high


def test_the_expected_bound_is_the_log_ratio_less_its_error():
    often, rare = np.array([0.02]), np.array([0.01])
    error = 1.2816 * math.sqrt((1 / 0.02 + 1 / 0.01) / PLAN.trials)
    assert expected_bound(often, rare, PLAN, fair_coins=True)[0] == pytest.approx(math.log(2) - error, abs=2e-3)
    assert expected_bound([0.0], [0.0], PLAN, fair_coins=True)[0] == -math.inf
    # None seen in the pilot is not none.
    assert raised_rate(often, np.array([0.0]), 1000, 1.0)[0] > 1e-3


@pytest.mark.parametrize("sides", [1, 2])
def test_with_delta_the_chance_of_a_false_bound_is_at_most_alpha_by_exact_sums(sides):
    # Right with r = e^eps w + delta', of 300 runs: all pairs of counts.
    epsilon, delta, runs, alpha, wrong_rate = 1.0, 0.05, 300, 0.1, 0.04
    right_rate = math.exp(epsilon) * wrong_rate + delta * sides / 2
    false, every = 0.0, 0.0
    for made in range(runs + 1):
        chance = binom.pmf(made, runs, right_rate + wrong_rate)
        if chance > 1e-9:
            right = np.arange(made + 1)
            masses = binom.pmf(right, made, right_rate / (right_rate + wrong_rate))
            above = [
                odds_low(int(k), made - int(k), alpha, delta=delta, runs=runs, sides=sides) > epsilon for k in right
            ]
            false, every = false + chance * masses[np.array(above)].sum(), every + chance
    assert every == pytest.approx(1, abs=1e-6)
    # Not much below either: the bound is no looser than it must be.
    assert alpha / 10 < false <= alpha


@pytest.mark.parametrize("sizes", [(400, 400), (300, 600), (900, 450)])
def test_at_the_boundary_of_delta_a_tenth_few_bounds_of_scores_are_false(sizes):
    law, rng = known_mechanism_for(MembershipScores, gaussian=False), np.random.default_rng(3)
    false = 0
    for seed in range(300):
        scores = MembershipScores(law.draw(1, sizes[0], rng), law.draw(0, sizes[1], rng), INDEPENDENT)
        split = SplitThreshold(0.2, seed)
        false += guess_odds(scores, delta=law.delta, alpha=0.1, threshold=split).epsilon_low > law.epsilon
    # As many or more once in 1,000 seeds at most.
    assert false <= binom.isf(1e-3, 300, 0.1)


@pytest.mark.parametrize(("n", "epsilon", "high"), [(250, 1.5, 0.6), (50, 1.5, 0.7), (800, 2.0, 0.7)])
def test_with_one_seed_for_all_audits_no_more_bounds_are_false(n, epsilon, high):
    """Coins that were equal in all audits of a size favoured one arm, and 9 to 14 % of these bounds were false."""
    rng, rates = np.random.default_rng(11), (high, high / math.exp(epsilon))
    false = 0
    for _ in range(200):
        member, nonmember = ((rng.random(n) < rate) * 1.0 for rate in rates)
        found = guess_odds(MembershipScores(member, nonmember, INDEPENDENT), delta=0, alpha=0.05, threshold=SPLIT)
        false += found.epsilon_low > epsilon
    # As many or more once in 1,000 seeds at most.
    assert false <= binom.isf(1e-3, 200, 0.05)


def test_scores_show_more_than_two_bounds_on_rates_and_never_depend_on_their_order():
    rng, delta = np.random.default_rng(5), 1e-5
    shown = []
    for seed in range(20):
        member, nonmember = rng.normal(mu_from_epsilon(4.0, delta), 1, 500), rng.normal(0, 1, 500)
        levels = {"delta": delta, "alpha": 0.05, "threshold": SplitThreshold(0.2, seed)}
        both = [
            estimator(MembershipScores(member, nonmember, INDEPENDENT), **levels).epsilon_low
            for estimator in (guess_odds, clopper_pearson)
        ]
        shown.append(both)
    ours, others = np.mean(shown, axis=0)
    assert ours > others + 0.2
    assert ours < 4


def test_the_coins_leave_few_runs_out_and_hardly_ever_need_more_than_there_are():
    for n0, n1, least in ((500, 500, 890), (5000, 5000, 9600), (200, 1000, 330)):
        runs = coin_runs(n0, n1)
        assert runs >= least
        more = [sum(binom.sf(n, count, 0.5) for n in (n0, n1)) for count in (runs, runs + 1)]
        assert more[0] <= 5e-4 < more[1]
    assert coin_runs(10, 10) == 0 < coin_runs(11, 11)


def test_a_fixed_threshold_guesses_members_alone_and_no_guess_shows_nothing():
    scores = MembershipScores(np.r_[np.full(60, 2.0), np.zeros(40)], np.zeros(100), INDEPENDENT)
    levels = {"delta": 1e-5, "alpha": 0.05}
    found = guess_odds(scores, **levels, threshold=FixedThreshold(1.0), epsilon=1.0)
    assert found.epsilon_low > 2
    assert found.false_positives == 0
    assert found.detectable is None
    silent = guess_odds(scores, **levels, threshold=FixedThreshold(9.0), epsilon=1.0)
    assert silent.epsilon_low == 0
    assert silent.detectable is None
    with pytest.raises(ValueError, match="needs at least 11 counted runs in each arm, got 1 and 1"):
        guess_odds(MembershipScores([1.0, 1.0], [0.0, 0.0], INDEPENDENT), **levels, threshold=SPLIT)
    with pytest.raises(
        ValueError, match="one rule for guesses, fixed in advance or learned on split-off runs, got bonferroni"
    ):
        guess_odds(scores, **levels, threshold=BonferroniThresholds((0.0, 1.0)))
    shared = MembershipScores([1.0, 1.0], [0.0, 0.0], setting(Design.ONE_RUN))
    with pytest.raises(ValueError, match="guess_odds needs independent trials"):
        guess_odds(shared, **levels, threshold=SPLIT)


def test_the_detectable_epsilon_is_refuted_with_the_stated_power():
    made, alpha, claimed = 200, 0.05, 1.0
    found = guess_odds_of_counts(counts(75, 25, 25, 75), alpha=alpha, epsilon=claimed).detectable
    wrong = np.arange(made + 1)
    refuted = np.array([odds_low(made - int(k), int(k), alpha) > claimed for k in wrong])
    power = binom.pmf(wrong, made, 1 / (1 + math.exp(found)))[refuted].sum()
    assert power == pytest.approx(0.9, abs=1e-6)
