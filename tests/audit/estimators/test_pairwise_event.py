"""One event on one report: bound, optimal events, randomisers at their claim."""

import itertools
import math

import numpy as np
import pytest
from fedassay.audit.curve import ProfileCurve
from fedassay.audit.estimators.pairwise_event import EventCounts, best_event, pairwise_event
from fedassay.defenses.randomisers.categories.grr import GRR
from fedassay.defenses.randomisers.categories.local_hashing import LocalHashing
from fedassay.defenses.randomisers.categories.subset_selection import SubsetSelection
from fedassay.defenses.randomisers.categories.unary import Unary
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def counts_of(setting_of):
    return lambda hits_in, n1, hits_out, n0, **changes: EventCounts(
        hits_in=int(hits_in), n1=n1, hits_out=int(hits_out), n0=n0, setting=setting_of(**changes)
    )


def test_the_bound_by_hand(counts_of):
    # 1 - .025^(1/10) above no hit of 10; all of 20 hit: the other rate is below by 1 - .025^(1/20).
    seen = pairwise_event(counts_of(20, 20, 0, 10), delta=0.1, alpha=0.05, witness="{y = v1}")
    fpr, fnr = 1 - 0.025 ** (1 / 10), 1 - 0.025 ** (1 / 20)
    assert seen.epsilon_low == seen.ceiling == pytest.approx(math.log((1 - fnr - 0.1) / fpr))
    assert (seen.estimate, seen.threshold, seen.witness) == (None, None, "{y = v1}")
    assert (seen.fpr_high, seen.fnr_high) == pytest.approx((fpr, fnr))


def laws(randomiser):
    """Of the worst pair, member first: masses of every report."""
    nonmember, member = randomiser.worst_pair()
    reports = randomiser.outputs().reports
    return [np.exp(randomiser.log_density(reports, value)) for value in (member, nonmember)]


def test_the_best_event_of_a_randomiser_is_the_one_of_ratio_e_to_the_epsilon():
    np.testing.assert_array_equal(best_event(*laws(GRR(epsilon=1.0, domain=10))), np.arange(10) == 0)
    for encoding in ("symmetric", "optimised"):
        unary = Unary(epsilon=1.0, domain=3, encoding=encoding)
        bits = unary.outputs().reports
        np.testing.assert_array_equal(best_event(*laws(unary)), (bits[:, 0] == 1) & (bits[:, 1] == 0))
    subset = SubsetSelection(epsilon=1.0, domain=6)
    sets = subset.outputs().reports
    np.testing.assert_array_equal(best_event(*laws(subset)), (sets[:, 0] == 1) & (sets[:, 1] == 0))
    hashing = LocalHashing(epsilon=1.0, domain=10)
    rows = hashing.outputs().reports
    own, other = (hashing.cell(rows, value) for value in (0, 1))
    np.testing.assert_array_equal(best_event(*laws(hashing)), (rows[:, 2] == own) & (own != other))


RANDOMISERS = {
    "GRR": GRR(epsilon=1.0, domain=10),
    "symmetric unary": Unary(epsilon=1.0, domain=3, encoding="symmetric"),
    "optimised unary": Unary(epsilon=1.0, domain=3),
    "subset selection": SubsetSelection(epsilon=1.0, domain=10),
    "local hashing": LocalHashing(epsilon=1.0, domain=10),
}


@pytest.mark.parametrize("name", RANDOMISERS)
def test_a_million_reports_show_98_hundredths_of_epsilon_one(counts_of, name):
    p, q = laws(RANDOMISERS[name])
    event = best_event(p, q, trials=10**6)
    rng = np.random.default_rng(0)
    bounds = [
        pairwise_event(
            counts_of(rng.binomial(10**6, p[event].sum()), 10**6, rng.binomial(10**6, q[event].sum()), 10**6),
            delta=0.0,
            alpha=0.05,
        ).epsilon_low
        for _ in range(20)
    ]
    assert 0.98 <= np.mean(bounds) < 1


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=7), st.floats(0, 0.2))
def test_no_event_beats_the_best_one(masses, delta):
    p, q = (np.array(side, dtype=float) for side in zip(*masses, strict=True))
    p[-1] += 1
    q[-1] += 1
    p, q = p / p.sum(), q / q.sum()

    def shown(event):
        tpr, fpr = p[event].sum(), q[event].sum()
        if tpr <= delta + 1e-12:
            return -math.inf
        return math.log((tpr - delta) / fpr) if fpr > 1e-12 else math.inf

    events = [np.array(mask) for mask in itertools.product([False, True], repeat=len(p))]
    assert shown(best_event(p, q, delta=delta)) == pytest.approx(max(map(shown, events)), abs=1e-6)


def test_few_reports_ask_for_an_event_with_more_mass():
    # The ratio is e^2 on an output of mass .001 and 1.6 on one of .5: a hundred reports cannot see the first.
    p, q = np.array([0.001 * math.exp(2), 0.48, 0.0]), np.array([0.001, 0.3, 0.0])
    p[2], q[2] = 1 - p.sum(), 1 - q.sum()
    assert best_event(p, q).tolist() == [True, False, False]
    assert best_event(p, q, trials=100).tolist() == [True, True, False]


def test_a_stated_profile_is_tested_by_the_same_point(counts_of):
    curve = ProfileCurve((1.0,), (0.0,), (0.0,))
    under = pairwise_event(counts_of(900, 1000, 100, 1000), delta=0.0, alpha=0.05, curve=curve, epsilon=1.0)
    assert under.below_curve
    assert under.detectable > 1
    assert not pairwise_event(counts_of(700, 1000, 300, 1000), delta=0.0, alpha=0.05, curve=curve).below_curve


def test_what_is_no_count_no_distribution_and_no_level_is_refused(counts_of):
    for counts in ((1, 0, 0, 1), (0, 1, 2, 1), (-1, 1, 0, 1)):
        with pytest.raises(ValueError, match=r"must lie in 0\.\.n for n >= 1 reports"):
            counts_of(*counts)
    for p, q in (([0.5, 0.6], [0.5, 0.5]), ([np.nan, 1.0], [0.5, 0.5]), ([-0.5, 1.5], [0.5, 0.5]), ([], [])):
        with pytest.raises(ValueError, match="member must be a probability distribution"):
            best_event(p, q)
    with pytest.raises(ValueError, match="on the same outputs"):
        best_event([1.0], [0.5, 0.5])
