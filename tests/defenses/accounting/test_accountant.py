"""Accountant: the published figures by both methods, noise over the claimed sensitivity, and what is refused.

Lower bounds on composed losses: little below known epsilons, and never above them.

What the first rounds of a claim spend: the whole claim at its end, and as if calibrated to stop there before.

Claims that a noise law states: the epsilons of the accountant, the curve, and laws that contradict an epsilon.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from fedassay.audit.claim import Adjacency, Claim
from fedassay.audit.curve import delta_from_mu, epsilon_from_mu
from fedassay.audit.estimators.release_tests import BrokenRelease, GaussianRelease, simulated_release_points
from fedassay.audit.power import trials_needed
from fedassay.defenses.accounting.accountant import Method, epsilon_of, gaussian_steps, sensitivity
from fedassay.defenses.accounting.below import LossPair, composed, gaussian_pair
from fedassay.defenses.accounting.gaussian import SampledGaussian, gaussian_curve, gaussian_noise
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.accounting.spending import gaussian_spending, pure_spending, sampled_spending
from fedassay.defenses.accounting.stated_laws import claim_from_accountant, claim_from_noise, claim_from_rho

ADD, REPLACE, ZERO = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT
DELTA = 1e-5
DP_SGD = [((0.013, 1.1, 1000), 2.250012, 2.020027), ((0.013, 6.0, 5000), 0.602583, 0.548881)]


@pytest.mark.parametrize(("law", "renyi", "exact"), DP_SGD, ids=str)
def test_both_methods_give_the_published_figures_of_dp_sgd(law, renyi, exact):
    event = gaussian_steps(rate=law[0], sigma=law[1], steps=law[2])
    assert epsilon_of(event, delta=DELTA, adjacency=ADD, method=Method.RDP) == pytest.approx(renyi, abs=5e-7)
    assert epsilon_of(event, delta=DELTA, adjacency=ADD) == pytest.approx(exact, abs=5e-7)


@pytest.mark.parametrize(("noise", "epsilon"), [(2.2, 4.3010), (1.1, 19.30)])
def test_fixed_lots_are_accounted_over_twice_the_clip_norm(noise, epsilon):
    sigma = noise / sensitivity(1.0, REPLACE)
    lots = SelfComposedDpEvent(SampledWithoutReplacementDpEvent(6000, 78, GaussianDpEvent(sigma)), 1000)
    spent = epsilon_of(lots, delta=DELTA, adjacency=REPLACE, method=Method.RDP)
    assert spent == pytest.approx(epsilon, abs=5e-5 if noise > 2 else 5e-3)


def test_the_library_reads_one_event_in_two_ways_and_the_adapter_in_one():
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    raw = [kind(neighboring_relation=NeighboringRelation.REPLACE_ONE) for kind in (RdpAccountant, PLDAccountant)]
    assert raw[0].compose(GaussianDpEvent(2.0)).get_epsilon(DELTA) == pytest.approx(2.166, abs=5e-4)
    assert raw[1].compose(GaussianDpEvent(2.0)).get_epsilon(DELTA) == pytest.approx(4.377, abs=5e-4)
    for adjacency in Adjacency:
        exact = epsilon_of(GaussianDpEvent(2.0), delta=DELTA, adjacency=adjacency)
        renyi = epsilon_of(GaussianDpEvent(2.0), delta=DELTA, adjacency=adjacency, method=Method.RDP)
        assert exact == pytest.approx(1.993091, abs=1e-4)
        assert renyi == pytest.approx(2.166, abs=5e-4)


def test_nested_events_keep_the_noise_that_they_say_under_replace_one():
    parts = ComposedDpEvent([GaussianDpEvent(4.0), SelfComposedDpEvent(GaussianDpEvent(8.0), 3)])
    exact = epsilon_from_mu(math.sqrt(1 / 16 + 3 / 64), DELTA)
    for adjacency in Adjacency:
        assert epsilon_of(parts, delta=DELTA, adjacency=adjacency) == pytest.approx(exact, rel=1e-3)


def test_sensitivity_is_the_clip_norm_and_twice_it_under_replace_one():
    assert [sensitivity(1.5, adjacency) for adjacency in (ADD, ZERO, REPLACE)] == [1.5, 1.5, 3.0]


def test_a_sensitivity_that_is_not_given_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"clip norm must be given, .* got None"):
        sensitivity(None, ADD)
    with pytest.raises(ValueError, match="norm must be a number > 0, got 0"):
        sensitivity(0, ADD)


LOTS = SampledWithoutReplacementDpEvent(6000, 78, GaussianDpEvent(1.0))


@pytest.mark.parametrize(
    ("event", "adjacency", "method"),
    [
        (LOTS, ADD, Method.RDP),
        (LOTS, ADD, Method.PLD),
        (LOTS, REPLACE, Method.PLD),
        (PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), REPLACE, Method.RDP),
        (LaplaceDpEvent(1.0), REPLACE, Method.PLD),
    ],
    ids=str,
)
def test_what_an_accountant_does_not_support_is_refused(event, adjacency, method):
    with pytest.raises(ValueError, match=f"{method.value} under .* does not support .*{type(event).__name__}"):
        epsilon_of(event, delta=DELTA, adjacency=adjacency, method=method)


def epsilon_below(pair, delta, *, reach):
    return max(composed([one], reach=reach).epsilon(delta) for one in (pair, pair.swapped()))


@pytest.mark.parametrize(("mu", "releases"), [(3.0, 1), (0.3, 10), (0.1, 100)])
def test_gaussian_releases(mu, releases):
    exact = epsilon_from_mu(mu * releases**0.5, 1e-5)
    found = epsilon_below(replace(gaussian_pair(mu), releases=releases), 1e-5, reach=exact)
    assert 0.99 * exact < found <= exact
    losses = composed([replace(gaussian_pair(mu), releases=releases)], reach=exact)
    for epsilon in (0.0, 0.5, 2.0):
        assert 0.97 * delta_from_mu(mu * releases**0.5, epsilon) < losses.delta(epsilon)
        assert losses.delta(epsilon) <= delta_from_mu(mu * releases**0.5, epsilon) + 1e-12


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.5, 0.5, 1), (1.0, 0.1, 100), (0.8, 0.01, 300)])
def test_sampled_releases(sigma, rate, steps):
    stated = SampledGaussian(sigma=sigma, rate=rate, steps=steps).epsilon(1e-5)
    found = epsilon_below(replace(gaussian_pair(1 / sigma, rate=rate), releases=steps), 1e-5, reach=stated)
    assert 0.98 * stated < found <= stated


def test_a_replaced_row_is_twice_as_far():
    assert epsilon_below(gaussian_pair(0.5, replaced=True), 1e-5, reach=4) == pytest.approx(
        epsilon_below(gaussian_pair(1.0), 1e-5, reach=4), rel=5e-3
    )


def test_randomised_response_composes_to_its_exact_epsilon():
    chances = np.array([np.e, 1.0]) / (1 + np.e)
    pair = LossPair(chances, chances[::-1], releases=20)
    exact = composed_epsilon(1.0, releases=20, delta=1e-3)
    assert 0.99 * exact < epsilon_below(pair, 1e-3, reach=exact) <= exact


def test_a_release_that_is_seldom_made_costs_its_share():
    pair, share = gaussian_pair(1.0), 0.2
    whole, seldom = (composed([replace(pair, share=chance)], reach=4) for chance in (1.0, share))
    for epsilon in (0.1, 1.0, 3.0):
        assert seldom.delta(epsilon) == pytest.approx(share * whole.delta(epsilon), rel=1e-6)


def test_a_hidden_chance_costs_less_than_a_seen_one():
    hidden = composed([gaussian_pair(1.0, hidden=0.2)], reach=4)
    assert hidden.delta(0.5) < 0.2 * delta_from_mu(1.0, 0.5)


def test_outcomes_that_only_one_input_produces_are_infinite_losses():
    pair = LossPair(np.array([0.1, 0.9]), np.array([0.0, 1.0]), releases=3)
    assert composed([pair], reach=1).epsilon(0.2) == np.inf
    assert composed([pair], reach=1).delta(5.0) == pytest.approx(1 - 0.9**3)
    assert composed([pair.swapped()], reach=1).epsilon(0.5) == 0.0


def test_a_composition_of_what_is_composed_is_the_composition():
    pair = replace(gaussian_pair(0.4), releases=6)
    once = composed([pair], reach=2)
    again = composed([replace(composed([replace(pair, releases=2)], reach=2).pair, releases=3)], reach=2)
    assert again.delta(1.0) == pytest.approx(once.delta(1.0), rel=0.02)


def claim_of(rounds, delta=DELTA, mu=None):
    return Claim.stated(epsilon=None if mu else 8.0, delta=delta, mu=mu, rounds=rounds)


def test_steps_that_every_sample_enters_spend_what_one_gaussian_does():
    """Two unsampled steps a round: five rounds are one release at sigma / sqrt(10)."""
    claim = claim_of(10)
    spent = sampled_spending(claim, SampledGaussian(sigma=4.0, rate=1.0, steps=20))[claim.claim_id]
    (whole,) = gaussian_spending(claim_of(10, mu=math.sqrt(20) / 4.0)).values()
    assert spent(5) == pytest.approx(whole(5), rel=2e-3)
    assert spent(10) == pytest.approx(whole(10), rel=2e-3)


def test_steps_must_be_alike_in_all_rounds():
    with pytest.raises(ValueError, match="must be a multiple of the number of rounds, 3, got 20 steps"):
        sampled_spending(claim_of(3), SampledGaussian(sigma=4.0, rate=1.0, steps=20))


def test_the_noise_for_twenty_rounds_spends_by_the_fifth_what_it_was_calibrated_for_over_five():
    noise = gaussian_noise(epsilon=3.0, delta=DELTA, releases=5)
    (spent,) = gaussian_spending(claim_of(20, mu=gaussian_curve(noise=noise, releases=20).mu)).values()
    assert spent(5) == pytest.approx(3.0, abs=1e-6)


def test_a_claim_without_a_gaussian_curve_has_no_root_to_grow_by():
    with pytest.raises(ValueError, match="only for a claim with a Gaussian trade-off curve"):
        gaussian_spending(claim_of(20))


def test_pure_releases_add_up_at_delta_0_and_less_beyond_it():
    (summed,) = pure_spending(claim_of(20, delta=0.0), each=0.1, releases=2).values()
    assert [summed(rounds) for rounds in (1, 10, 20)] == pytest.approx([0.2, 2.0, 4.0])
    (composed,) = pure_spending(claim_of(20), each=0.1, releases=2).values()
    assert composed(1) <= 0.2
    assert composed(20) < 4.0


def test_one_gaussian_release_has_its_exact_epsilon_and_curve():
    claim = claim_from_noise(2.0, delta=1e-5)
    assert claim.epsilon == pytest.approx(epsilon_from_mu(0.5, 1e-5), rel=2e-3)
    assert (claim.curve.mu, claim.unit.value, claim.adjacency.value) == (0.5, "sample", "add_remove")
    assert claim_from_noise(4.0, delta=1e-5, steps=4).curve.mu == 0.5


def test_replace_one_moves_a_sum_twice_as_far():
    claim = claim_from_noise(2.0, delta=1e-5, adjacency="replace_one")
    assert claim.curve.mu == 1.0
    assert claim.epsilon == pytest.approx(epsilon_from_mu(1.0, 1e-5), rel=2e-3)


def test_rho_is_half_of_mu_squared_at_most():
    claim = claim_from_rho(0.125, delta=1e-5, unit="client")
    assert epsilon_from_mu(0.5, 1e-5) < claim.epsilon < 1.3 * epsilon_from_mu(0.5, 1e-5)


def test_a_larger_epsilon_may_be_claimed_and_a_smaller_one_contradicts_the_law():
    assert claim_from_noise(2.0, delta=1e-5, epsilon=9.0).epsilon == 9.0
    with pytest.raises(ValueError, match=r"implies epsilon .*, which is more than the stated"):
        claim_from_noise(2.0, delta=1e-5, epsilon=0.5)
    with pytest.raises(ValueError, match=r"implies epsilon .*, which is more than the stated"):
        claim_from_rho(1.0, delta=1e-5, epsilon=1.0)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: claim_from_noise(0.0, delta=1e-5), "noise_multiplier must be a number > 0, got 0.0"),
        (lambda: claim_from_noise(1.0, delta=0.0), "delta"),
        (lambda: claim_from_noise(1.0, delta=1e-5, sampling_rate=2.0), r"sampling_rate must be in \(0, 1\], got 2.0"),
        (lambda: claim_from_noise(1.0, delta=1e-5, epsilon="4"), "epsilon must be a number > 0, got '4'"),
        (lambda: claim_from_noise(1.0, delta=1e-5, steps=0), "steps must be >= 1, got 0"),
        (
            lambda: claim_from_noise(1.0, delta=1e-3, sampling_rate=0.00105),
            "epsilon must be > 0 and finite, got 0.0 at delta 0.001: a claim that bounds only",
        ),
        (lambda: claim_from_rho(0.1, delta=0.9), "got 0.0 at delta 0.9: .* state a smaller delta"),
        (lambda: claim_from_rho(-1.0, delta=1e-5), "rho must be a number > 0"),
        (lambda: claim_from_rho(math.inf, delta=1e-5), "rho must be a number > 0, got inf"),
    ],
)
def test_laws_out_of_range_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_a_history_of_one_law_is_the_claim_of_its_noise():
    claim = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 24)]), delta=1e-5)
    assert claim == claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)


def test_a_history_of_several_laws_composes_them():
    same = claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)
    split = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 14), (1.0, 0.1, 10)]), delta=1e-5)
    assert split.epsilon == pytest.approx(same.epsilon, rel=1e-3)
    assert split.curve_shortfall() < 1e-6
    quieter = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 14), (0.8, 0.1, 10)]), delta=1e-5)
    assert quieter.epsilon > 1.1 * split.epsilon


def test_the_ledger_of_another_library_states_the_same_claim():
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0)), 24
    )
    accountant = RdpAccountant().compose(event)
    expected = claim_from_noise(1.0, delta=1e-5, sampling_rate=0.1, steps=24)
    for given in (accountant, event):
        claim = claim_from_accountant(given, delta=1e-5)
        assert claim.epsilon == pytest.approx(expected.epsilon, rel=1e-6)
        assert claim.curve == expected.curve


def test_the_curve_refutes_half_of_the_noise_from_far_fewer_runs_than_epsilon():
    claim = claim_from_accountant(SimpleNamespace(history=[(1.0, 0.1, 24)]), delta=1e-5)
    release = GaussianRelease(sigma=1.0, rate=0.1, rounds=24)
    points = simulated_release_points(release, BrokenRelease(noise=0.5), rng=np.random.default_rng(0))
    runs = [
        trials_needed(points, curve=curve, epsilon=claim.epsilon, delta=1e-5, alpha=0.05).trials
        for curve in (claim.curve, None)
    ]
    # A reference audit of 24 steps reports 79 and 4,829, at a sampling rate that it does not name.
    assert 60 < runs[0] < 110
    assert 3_000 < runs[1] < 9_000


@pytest.mark.parametrize(
    ("accountant", "error", "words"),
    [
        (SimpleNamespace(history=[]), ValueError, "history is empty: no step was accounted"),
        (SimpleNamespace(history=[(1.0, 0.1)]), ValueError, "history must hold"),
        (SimpleNamespace(history=[(0.0, 0.1, 3)]), ValueError, "noise multiplier of the history must be a number > 0"),
        (SimpleNamespace(history=[(1.0, 1.5, 3)]), ValueError, r"sampling rate of the history must be in \(0, 1\]"),
        ("prv", TypeError, "accountant must have a history"),
    ],
)
def test_an_accountant_without_a_usable_history_is_refused(accountant, error, words):
    with pytest.raises(error, match=words):
        claim_from_accountant(accountant, delta=1e-5)
