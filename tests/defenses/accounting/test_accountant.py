"""Accountant: the published figures by both methods, noise over the claimed sensitivity, and what is refused."""

import math
from importlib.metadata import version

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import ACCOUNTANT, Method, epsilon_of, gaussian_steps, sensitivity
from opacus.accountants import GaussianAccountant
from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent
from scipy.special import logsumexp

ADD, REPLACE, ZERO = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT
DELTA = 1e-5
DP_SGD = [((0.013, 1.1, 1000), 2.250012, 2.020027), ((0.013, 6.0, 5000), 0.602583, 0.548881)]


@pytest.mark.parametrize(("law", "renyi", "exact"), DP_SGD, ids=str)
def test_both_methods_give_the_published_figures_of_dp_sgd(law, renyi, exact):
    event = gaussian_steps(rate=law[0], sigma=law[1], steps=law[2])
    assert epsilon_of(event, delta=DELTA, adjacency=ADD, method=Method.RDP) == pytest.approx(renyi, abs=5e-7)
    assert epsilon_of(event, delta=DELTA, adjacency=ADD) == pytest.approx(exact, abs=5e-7)


def test_epsilon_two_over_a_thousand_lots_takes_the_published_noise_to_its_last_digit():
    less, enough = (
        epsilon_of(gaussian_steps(rate=0.013, sigma=sigma, steps=1000), delta=DELTA, adjacency=ADD)
        for sigma in (1.10597, 1.10598)
    )
    assert less > 2 >= enough


@pytest.mark.parametrize(("law", "renyi", "exact"), DP_SGD, ids=str)
def test_the_central_limit_figure_lies_below_and_certifies_nothing(law, renyi, exact):
    with pytest.warns(UserWarning, match="can underestimate"):
        accountant = GaussianAccountant()
    accountant.history = [(law[1], law[0], law[2])]
    assert accountant.get_epsilon(delta=DELTA) < exact


@pytest.mark.parametrize(("law", "printed", "renyi"), [(DP_SGD[0][0], 114, 2.25), (DP_SGD[1][0], 80, 0.60)], ids=str)
def test_the_sum_that_adap_dp_fl_prints_without_its_logarithm_is_no_privacy_loss(law, printed, renyi):
    """Fu et al. 2022, Theorem 1, orders 2..64, t = 0..T: the binomial sum itself where its logarithm belongs."""
    rate, squares, steps = law[0], 2 * law[1] ** 2, law[2]

    def total(order, of_sum):
        terms = (
            math.log(math.comb(order, i)) + (order - i) * math.log1p(-rate) + i * math.log(rate) + (i * i - i) / squares
            for i in range(order + 1)
        )
        return of_sum(float(logsumexp(list(terms)))) / (order - 1) + math.log(1 / DELTA) / (order - 1)

    def epsilon(of_sum):
        return min(total(order, of_sum) for order in range(2, 65))

    assert epsilon(lambda log_sum: (steps + 1) * math.exp(min(log_sum, 700))) == pytest.approx(printed, abs=0.5)
    # With its logarithm; the rest is the paper's looser conversion and its orders, which end at 64.
    assert renyi < epsilon(lambda log_sum: steps * log_sum) < 1.3 * renyi


@pytest.mark.parametrize(("law", "paid"), [((0.013, 1.1, 1000), 5.07), ((0.013, 6.0, 5000), 0.89)], ids=str)
def test_a_second_query_on_the_same_lot_costs_what_the_reference_states(law, paid):
    """Adap DP-FL's threshold: as noisy as the gradient, so that together they have noise sigma / sqrt 2."""
    event = gaussian_steps(rate=law[0], sigma=law[1] / math.sqrt(2), steps=law[2])
    assert epsilon_of(event, delta=DELTA, adjacency=ADD, method=Method.RDP) == pytest.approx(paid, abs=0.005)


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


def test_randomised_response_passes_through_both_accountants():
    event = RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    for method in Method:
        assert 0.999 < epsilon_of(event, delta=1e-9, adjacency=REPLACE, method=method) < 1.02


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


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan])
def test_a_delta_that_is_none_is_refused(delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got"):
        epsilon_of(GaussianDpEvent(1.0), delta=delta, adjacency=ADD)


def test_the_claim_names_library_version_and_method():
    assert ACCOUNTANT == Method.PLD.accountant == f"dp-accounting {version('dp-accounting')} PLD"
    assert Method.RDP.accountant.endswith(" RDP")


def test_an_independent_renyi_accountant_agrees():
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64))
    renyi = compute_rdp(q=0.013, noise_multiplier=1.1, steps=1000, orders=orders)
    event = gaussian_steps(rate=0.013, sigma=1.1, steps=1000)
    ours = epsilon_of(event, delta=DELTA, adjacency=ADD, method=Method.RDP)
    assert ours == pytest.approx(get_privacy_spent(orders=orders, rdp=renyi, delta=DELTA)[0], rel=1e-3)
