"""The rule that guesses inputs: its thresholds are the best of all, its counts follow them."""

import itertools
import math

import numpy as np
import pytest
from fedassay.audit.mechanism.search import Guesses, GuessRule, best_rule, expected_bound, raised_rate, selection_bias
from fedassay.audit.threshold import CountingPlan

PLAN = CountingPlan(trials=100_000, delta=0.0, alpha=0.1, curve=None)


def test_between_its_thresholds_no_guess_is_made():
    rule = GuessRule(high=2.0, low=-1.0)
    assert rule.guesses(np.array([3.0, 2.0, 0.0, -1.0, -5.0])) == Guesses(second=1, first=2)
    assert GuessRule(high=2.0, low=-math.inf).guesses(np.array([3.0, -9.0])) == Guesses(second=1, first=0)
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


@pytest.mark.parametrize("seed", range(5))
def test_scores_without_a_difference_promise_less_than_they_seem_to(seed):
    # A few standard errors of the ratio at the median, sqrt(2 / 5000) each; the rarest events seem to show far more.
    rng = np.random.default_rng(seed)
    sides = rng.normal(size=(2, 5000))
    promised, seeming = best_rule(*sides, PLAN, compared=20)[1], best_rule(*sides, PLAN, 0.0)[1]
    assert promised < 0.06
    assert seeming > 2 * promised
