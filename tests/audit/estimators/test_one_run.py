"""One run, many canaries: Steinke's bound against a naive version, null, boundary, shared coins, tightness."""

import math
from functools import lru_cache

import numpy as np
import pytest
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.one_run import epsilon_from_guesses, guess, one_run, p_value
from fedassay.audit.evidence import CandidateScores, Design, Guesses
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.measurement import FAIR_COINS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom


@pytest.fixture(scope="module")
def guesses_of(setting_of):
    return lambda right, made, canaries: Guesses(right, made, canaries, setting_of(design=Design.ONE_RUN))


def naive_p(right, made, canaries, epsilon, delta):
    """The formula as it is printed."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    tail = sum(binom.pmf(k, made, q) for k in range(right, made + 1))
    slack = max(
        (sum(binom.pmf(k, made, q) for k in range(right - i, right)) / i for i in range(1, right + 1)), default=0
    )
    return min(1.0, tail + 2 * canaries * delta * slack)


def test_the_published_example():
    assert p_value(90, 100, 1000, epsilon=1, delta=1e-5) == pytest.approx(8.412886e-4, rel=1e-6)
    assert epsilon_from_guesses(90, 100, 1000, delta=1e-5, alpha=0.05) == pytest.approx(1.6261, abs=5e-5)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 25), st.integers(0, 25), st.floats(0, 5), st.sampled_from([0.0, 1e-5, 1e-3]))
def test_the_p_value_is_the_formula_term_by_term(right, wrong, epsilon, delta):
    made = right + wrong
    expected = naive_p(right, made, 60, epsilon, delta)
    assert p_value(right, made, 60, epsilon=epsilon, delta=delta) == pytest.approx(expected, rel=1e-9)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 40), st.floats(0, 0.01), st.floats(0.001, 0.5))
def test_the_bound_is_finite_costs_delta_and_lies_just_inside_what_is_refuted(right, wrong, silent, delta, alpha):
    made, canaries = right + wrong, max(1, right + wrong + silent)
    bound = epsilon_from_guesses(right, made, canaries, delta=delta, alpha=alpha)
    assert 0 <= bound <= epsilon_from_guesses(right, made, canaries, delta=0.0, alpha=alpha) + 1e-8 < math.inf
    assert bound == 0 or p_value(right, made, canaries, epsilon=bound, delta=delta) < alpha


def test_a_measurement_by_guesses_carries_guesses_and_no_threshold(guesses_of):
    seen = one_run(guesses_of(90, 100, 1000), delta=1e-5, alpha=0.05, epsilon=1.0, witness="1000 Dirac canaries")
    assert (seen.canaries, seen.made, seen.right) == (1000, 100, 90)
    assert (seen.n0, seen.n1) == (0, 0)
    assert (seen.threshold, seen.false_positives, seen.fpr_high, seen.below_curve) == (None,) * 4
    assert seen.ceiling == epsilon_from_guesses(100, 100, 1000, delta=1e-5, alpha=0.05) > seen.epsilon_low
    assert seen.estimate == pytest.approx(math.log(9))
    assert seen.assumption == FAIR_COINS
    assert seen.to_dict()["kind"] == "bound"


def test_what_is_detectable_is_refuted_with_power_nine_tenths(guesses_of):
    seen = one_run(guesses_of(50, 100, 1000), delta=1e-5, alpha=0.05, epsilon=1.0)
    refuting = [v for v in range(101) if p_value(v, 100, 1000, epsilon=1.0, delta=1e-5) < 0.05]
    rate = 1 / (1 + math.exp(-seen.detectable))
    assert binom.sf(min(refuting) - 1, 100, rate) == pytest.approx(0.9, abs=1e-6)
    assert one_run(guesses_of(2, 2, 10), delta=1e-5, alpha=0.05, epsilon=1.0).detectable is None


def test_judge_reads_guesses(claim_of, guesses_of):
    refuted = judge(claim_of(epsilon=1.0), one_run(guesses_of(90, 100, 1000), delta=1e-5, alpha=0.05))
    assert (refuted.verdict, refuted.route) == (Verdict.REFUTED, "eps_low")
    assert refuted.line().endswith("eps >= 1.62, max certifiable 3.47: REFUTED")
    weak = judge(claim_of(), one_run(guesses_of(20, 20, 1000), delta=1e-5, alpha=0.05))
    assert weak.verdict is Verdict.UNDERPOWERED
    assert weak.reason == "even without any error, 20 guesses on 1000 canaries of one run would not refute the claim"
    open_ = judge(claim_of(), one_run(guesses_of(300, 500, 1000), delta=1e-5, alpha=0.05))
    assert (open_.verdict, "without any error" in open_.reason) == (Verdict.UNDERPOWERED, False)


def test_guesses_are_made_at_both_ends_and_counted_by_hand(setting_of):
    scores = CandidateScores([5.0, 1.0, 3.0, 4.0, 2.0], setting_of(design=Design.ONE_RUN))
    coins = np.array([True, False, True, False, True])
    made = guess(scores, coins, highest=2, lowest=2, rng=np.random.default_rng(0))
    # In: 5 (right), 4 (wrong); out: 1 (right), 2 (wrong); 3 abstained.
    assert (made.right, made.made, made.canaries) == (2, 4, 5)


def test_ties_do_not_tell_the_coins_by_their_order(setting_of):
    coins = np.arange(1000) >= 500
    scores = CandidateScores(np.ones(1000), setting_of(design=Design.ONE_RUN))
    made = guess(scores, coins, highest=200, lowest=200, rng=np.random.default_rng(1))
    assert made.right == pytest.approx(200, abs=40)


def test_guesses_that_do_not_fit_are_refused(setting_of):
    scores = CandidateScores([1.0, 2.0], setting_of(design=Design.ONE_RUN))
    rng = np.random.default_rng(0)
    with pytest.raises(
        ValueError, match=r"highest and lowest .*must be >= 0 and sum to at most 2 canaries, got 2 \+ 1"
    ):
        guess(scores, np.array([True, False]), highest=2, lowest=1, rng=rng)
    with pytest.raises(ValueError, match=r"member .*must be booleans"):
        guess(scores, np.array([1, 0]), highest=1, lowest=1, rng=rng)


def right_guesses(scores, coins, side):
    """Right among the ``side`` highest and lowest of each row; scores have no ties."""
    order = np.argsort(scores, axis=1)
    held = np.take_along_axis(coins, order, axis=1)
    return held[:, -side:].sum(axis=1) + (~held[:, :side]).sum(axis=1)


def test_a_thousand_canaries_of_a_gaussian_show_one_and_a_half_of_four():
    # sigma 1.081 (epsilon 4 at 1e-5), r 80, 200 repeats: the theory's limit is 1.55.
    rng, bound, mu = np.random.default_rng(4), lru_cache(epsilon_from_guesses), mu_from_epsilon(4, 1e-5)
    coins = rng.random((200, 1000)) < 0.5
    right = right_guesses(rng.normal(size=coins.shape) + mu * coins, coins, side=40)
    mean = np.mean([bound(int(v), 80, 1000, delta=1e-5, alpha=0.05) for v in right])
    assert 1.5 <= mean < 1.65
