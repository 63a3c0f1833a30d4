"""The privacy blanket: known similarities, few reports by enumeration, and never below the exact divergence."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from fedassay.defenses.accounting.blanket import (
    BlanketPair,
    gaussian,
    laplace,
    laplace_chances,
    randomised_response,
)
from fedassay.defenses.accounting.counts import CountPair, binomial, poisson_binomial
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.accounting.shuffled import ClonePair, shuffled, shuffled_bits
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

budgets = st.floats(0.1, 4)
rates = st.floats(0.05, 1)


@pytest.mark.parametrize(
    ("pair", "similarity"),
    [
        (randomised_response(epsilon0=1.0, values=10, reports=3), 10 / (math.e + 9)),
        (laplace(epsilon0=1.0, reports=3, clipped=False), math.exp(-0.5)),
        (laplace(epsilon0=1.0, reports=3, clipped=True), 2 / (1 + math.exp(0.5))),
        (gaussian(sigma=0.7, reports=3), 2 * norm.cdf(-1 / 1.4)),
    ],
)
def test_the_similarities_are_those_in_closed_form(pair, similarity):
    """Balle et al. 2019, Section 5: k / (e^eps0 + k - 1), e^(-eps0 / 2) and 2 Phi(-1 / (2 sigma))."""
    assert pair.similarity == pytest.approx(similarity, rel=1e-12)
    assert pair.one.sum() == pytest.approx(1, rel=1e-12)
    assert pair.other.sum() == pytest.approx(1, rel=1e-12)


def excess(pair, epsilon):
    """E[(X_1 + ... + X_n)+] / n, outcome by outcome."""
    values = np.append((pair.one - math.exp(epsilon) * pair.other) / pair.blanket, 0.0)
    chances = np.append(pair.blanket, 1 - pair.similarity)
    total = 0.0
    for counts in itertools.combinations_with_replacement(range(len(values)), pair.reports):
        ways = math.factorial(pair.reports)
        for times in Counter(counts).values():
            ways //= math.factorial(times)
        total += ways * math.prod(chances[list(counts)]) * max(0.0, values[list(counts)].sum())
    return total / pair.reports


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(2, 5), budgets, st.floats(0, 1), rates)
def test_the_bound_is_what_enumeration_finds_and_a_little_more(reports, values, epsilon0, share, rate):
    pair = randomised_response(epsilon0=epsilon0, values=values, reports=reports).checked_in(rate)
    epsilon = share * epsilon0
    found, exact = pair.delta(epsilon), excess(pair, epsilon)
    assert exact - 1e-15 <= found <= 1.05 * exact + 1e-15


def histograms(laws):
    """The law of the multiset of independent reports, one row of ``laws`` for each."""
    found = Counter()
    for outcome in itertools.product(range(laws.shape[1]), repeat=len(laws)):
        found[tuple(sorted(outcome))] += math.prod(laws[range(len(laws)), outcome])
    return found


def largest_divergence(randomiser, reports, epsilon):
    """The hockey-stick divergence of shuffled reports, the largest over all values of all clients."""
    values = range(len(randomiser))
    largest = 0.0
    for others in itertools.combinations_with_replacement(values, reports - 1):
        laws = [histograms(randomiser[[value, *others]]) for value in values]
        for one, other in itertools.permutations(laws, 2):
            largest = max(largest, sum(max(0.0, p - math.exp(epsilon) * other[key]) for key, p in one.items()))
    return largest


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(2, 3), budgets, st.floats(0, 1), rates)
def test_no_values_of_few_clients_leak_more_than_the_bound(reports, values, epsilon0, share, rate):
    """All of randomised response, with clients that check in by coins: the last report is none."""
    lie = 1 / (math.exp(epsilon0) + values - 1)
    randomiser = rate * (lie + (math.exp(epsilon0) - 1) * lie * np.eye(values))
    randomiser = np.hstack([randomiser, np.full((values, 1), 1 - rate)])
    pair = randomised_response(epsilon0=epsilon0, values=values, reports=reports).checked_in(rate)
    epsilon = share * epsilon0
    assert largest_divergence(randomiser, reports, epsilon) <= pair.delta(epsilon) + 1e-14


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), budgets, st.sampled_from([1e-2, 1e-6, 1e-12, 1e-30]))
def test_two_values_hide_among_fair_coins_which_are_counted_exactly_far_into_the_tail(reports, epsilon0, delta):
    """The blanket of binary randomised response is a fair coin: clones with probability 2 / (1 + e^eps0)."""
    coins = ClonePair(epsilon0=epsilon0, clones=binomial(reports - 1, 2 / (1 + math.exp(epsilon0))))
    pair = randomised_response(epsilon0=epsilon0, values=2, reports=reports)
    low, high = 0.0, epsilon0
    for _ in range(40):  # Not by the window's search, which refuses deltas below its own loss.
        middle = (low + high) / 2
        low, high = (middle, high) if coins.delta(middle) - coins.clones.lost > delta else (low, middle)
    assume(low < 0.999 * epsilon0)
    exact = coins.delta(low) - coins.clones.lost
    assert exact * (1 - 1e-9) <= pair.delta(low) <= 1.03 * exact + 1e-14 * delta


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4000), budgets, st.sampled_from([1e-5, 1e-8]))
def test_the_bound_lies_between_the_exact_epsilon_of_bits_and_that_of_clones(clients, epsilon0, delta):
    pair = randomised_response(epsilon0=epsilon0, values=2, reports=clients)
    assert pair.delta(shuffled_bits(clients=clients, epsilon0=epsilon0).epsilon(delta) - 2e-9) >= delta * (1 - 1e-9)
    assert pair.delta(shuffled(clients=clients, epsilon0=epsilon0).epsilon(delta)) <= 1.02 * delta


LAPLACE, CLIPPED, GAUSSIAN = "laplace", "clipped", "gaussian"


def cells(noise, spread, value, edges):
    """The probabilities of cells of a report of ``value`` in [-1/2, 1/2]."""
    if noise == GAUSSIAN:
        return np.diff(norm.cdf(edges, value, spread))
    below = np.where(edges < value, np.exp((edges - value) * spread) / 2, 1 - np.exp((value - edges) * spread) / 2)
    return np.diff(below) / (1.0 if noise == LAPLACE else below[-1] - below[0])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([LAPLACE, CLIPPED, GAUSSIAN]),
    st.floats(0.3, 3),
    st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=4),
    st.floats(0, 1.5),
)
def test_no_cells_of_two_or_three_noisy_numbers_leak_more_than_the_bound(noise, spread, values, epsilon):
    """The client's two values come first; whatever falls into five cells is enumerated."""
    edges = np.linspace(-0.5, 0.5, 6)
    if noise != CLIPPED:
        edges = np.concatenate([[-60.0], edges[1:-1], [60.0]])
    rows = np.array([cells(noise, spread, value, edges) for value in values])
    one, other = histograms(rows[[0, *range(2, len(rows))]]), histograms(rows[1:])
    pair = CountPair(*(np.array([law[key] for key in one]) for law in (one, other)))
    reports = len(values) - 1
    if noise == GAUSSIAN:
        bound = gaussian(sigma=spread, reports=reports)
    else:
        bound = laplace(epsilon0=spread, reports=reports, clipped=noise == CLIPPED)
    assert pair.delta(epsilon) <= bound.delta(epsilon) + 1e-9


@pytest.mark.parametrize("noise", [LAPLACE, CLIPPED, GAUSSIAN])
def test_two_noisy_numbers_have_the_bound_of_a_fine_grid(noise):
    """E[(X_1 + X_2)+] / 2 by cells so fine that ratios do not vary in them, for the two ends of the range."""
    half, spread = {CLIPPED: (0.5, 1.3), LAPLACE: (12.0, 1.3), GAUSSIAN: (15.0, 2.5)}[noise]
    edges = np.linspace(-half, half, 2401 if noise == CLIPPED else 6001)
    one, other = (cells(noise, spread, value, edges) for value in (0.5, -0.5))
    blanket = np.minimum(one, other)
    for epsilon in (0.0, 0.3, 0.8):
        each = (one - math.exp(epsilon) * other) / blanket
        order = np.argsort(each)
        above = np.append(np.cumsum(blanket[order][::-1])[::-1], 0.0)
        weighted = np.append(np.cumsum((blanket * each)[order][::-1])[::-1], 0.0)
        place = np.searchsorted(each[order], -each)
        both = float(blanket @ (each * above[place] + weighted[place]))
        alone = float(blanket @ np.maximum(each, 0))
        naive = (both + 2 * (1 - blanket.sum()) * alone) / 2
        bound = gaussian(sigma=spread, reports=2) if noise == GAUSSIAN else None
        bound = bound or laplace(epsilon0=spread, reports=2, clipped=noise == CLIPPED)
        assert naive * (1 - 2e-4) <= bound.delta(epsilon) <= naive * (1 + 5e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 2000), budgets, rates, st.floats(0, 1))
def test_more_reports_smaller_budgets_and_rarer_ones_never_leak_more(reports, epsilon0, rate, share):
    here = laplace(epsilon0=epsilon0, reports=reports, clipped=True)
    epsilon = share * epsilon0
    for less in (
        laplace(epsilon0=epsilon0, reports=2 * reports, clipped=True),
        laplace(epsilon0=0.8 * epsilon0, reports=reports, clipped=True),
        here.checked_in(rate),
        here.drawn(rate),
    ):
        assert less.delta(epsilon) <= 1.03 * here.delta(epsilon)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=7))
def test_among_unequal_others_no_more_are_counted_than_there_are(chances):
    pair = randomised_response(epsilon0=1.0, values=2, reports=1).hidden_by(np.array(chances))
    counted = np.append(binomial(pair.reports - 1, pair.similarity).pmf, np.zeros(8))
    law = poisson_binomial(chances)
    real = np.zeros_like(counted)
    real[law.first : law.first + law.pmf.size] = law.pmf
    assert np.all(np.cumsum(real) <= np.cumsum(counted) + 1e-12)
    equal = randomised_response(epsilon0=1.0, values=2, reports=1).hidden_by(np.full(6, chances[0]))
    assert (equal.reports, equal.similarity) == (7, pytest.approx(chances[0]))


@settings(max_examples=30)
@given(st.floats(0.05, 3), st.floats(0.05, 3), st.booleans())
def test_a_report_of_another_budget_is_of_the_blanket_as_often_as_the_least_ratio(neighbour, epsilon, clipped):
    edges = np.linspace(-0.5, 0.5, 4001) if clipped else np.linspace(-4.0, 4.0, 8001)
    own, theirs = (
        np.minimum(*(cells(CLIPPED if clipped else LAPLACE, budget, value, edges) for value in (0.5, -0.5)))
        for budget in (epsilon, neighbour)
    )
    least = (theirs / own).min() * (own.sum() if clipped else math.exp(-epsilon / 2))
    exact = laplace_chances(np.array([neighbour]), epsilon, clipped=clipped)[0]
    assert exact == pytest.approx(least, rel=2e-3) if clipped or neighbour <= epsilon else exact == 0


def test_all_coordinates_of_many_clients_cost_less_than_half_of_what_clones_give():
    """7850 coordinates at budget 1 among 10,000 clients, total delta 3.6e-5: 2.35 where clones give 5.81."""
    pair = laplace(epsilon0=1.0, reports=10_000, clipped=True)
    assert pair.epsilon(1e-8) == pytest.approx(0.030556, abs=2e-6)
    assert many_epsilon(pair, releases=7850, delta=3.6e-5) == pytest.approx(2.350, abs=0.001)


def test_one_report_alone_is_not_amplified():
    for pair in (
        laplace(epsilon0=1.3, reports=1, clipped=True),
        randomised_response(epsilon0=1.3, values=4, reports=1),
        laplace(epsilon0=1.3, reports=1, clipped=True).hidden_by(np.zeros(5)),
    ):
        assert pair.pure_epsilon == pytest.approx(1.3)
        assert pair.epsilon(1e-13) == pytest.approx(1.3, abs=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: laplace(epsilon0=0.0, reports=3, clipped=True), "epsilon0 must be a number > 0, got 0.0"),
        (lambda: laplace(epsilon0=1.0, reports=0, clipped=True), "reports must be a whole number >= 1, got 0"),
        (lambda: gaussian(sigma=-1.0, reports=3), "sigma must be a number > 0, got -1.0"),
        (lambda: randomised_response(epsilon0=1.0, values=1, reports=3), "values must be a whole number >= 2, got 1"),
        (lambda: laplace(epsilon0=1.0, reports=3, clipped=True).checked_in(0), r"rate must be in \(0, 1\], got 0"),
        (lambda: laplace(epsilon0=1.0, reports=3, clipped=True).one_of(0), "records must be a whole number >= 1"),
        (lambda: BlanketPair(one=np.ones(2), other=np.ones(1), blanket=np.ones(1), reports=1), "rows of equal length"),
        (lambda: BlanketPair(one=np.ones(1), other=np.ones(1), blanket=np.array([2.0]), reports=1), "at most 1, got"),
    ],
)
def test_what_is_no_randomiser_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
