"""The accountant in arrays: the library's numbers where its grid is fine, and between proved bounds over many steps.

Connected dots: never below what is exact, within a thousandth above it, and refusals.

The sum of losses of the same distribution, held against a loop of convolutions and against dp-accounting.
"""

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    MixtureOfGaussiansDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import common, privacy_loss_distribution
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import delta_from_mu, epsilon_from_mu
from fedassay.defenses.accounting.accountant import RELATIONS, Method, _doubled, compose, epsilon_of, gaussian_steps
from fedassay.defenses.accounting.counts import CountPair, binomial, bit_among
from fedassay.defenses.accounting.gaussian import SampledGaussian, calibrate_sampled_gaussian
from fedassay.defenses.accounting.pld import convolved, many_curve, many_epsilon
from fedassay.defenses.accounting.shuffled import shuffled
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import expit
from scipy.stats import binom, norm

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
INTERVAL = 1e-3
DELTAS = (1e-9, 1e-5, 0.1)
EPSILONS = (0.0, 0.1, 1.0, 5.0)


def sampled(sigma, rate, steps):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)


def numbers(accountant):
    return [accountant.get_epsilon(delta) for delta in DELTAS] + [accountant.get_delta(e) for e in EPSILONS]


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (sampled(0.3, 0.1, 8), ADD),
        (sampled(0.83, 0.013, 200), ADD),
        (sampled(1.5, 0.5, 20), ADD),
        (sampled(6.0, 0.2, 1), ADD),
        (sampled(0.3, 1e-3, 40), ADD),
        (sampled(4.0, 0.999, 3), Adjacency.ZERO_OUT),
        (sampled(1.0, 1.0, 3), ADD),
        (ComposedDpEvent([sampled(1.5, 0.5, 2), GaussianDpEvent(2.0), sampled(2.0, 0.1, 3)]), ADD),
        (SelfComposedDpEvent(MixtureOfGaussiansDpEvent(5.0, (0.5, 1.0), (0.5, 0.5)), 5), ADD),
        (sampled(1.0, 0.1, 10), REPLACE),
        (ComposedDpEvent([sampled(1.5, 0.5, 2), GaussianDpEvent(2.0)]), REPLACE),
    ],
    ids=str,
)
def test_its_numbers_are_the_librarys_where_one_step_loses_more_than_the_grids_step(event, adjacency):
    doubled = _doubled(event) if adjacency is REPLACE else event
    theirs = numbers(PLDAccountant(RELATIONS[adjacency], INTERVAL).compose(doubled))
    assert numbers(compose(event, adjacency=adjacency, interval=INTERVAL)) == pytest.approx(theirs, rel=1e-4, abs=3e-13)


def lower_bound(sigma, rate, steps, delta):
    """Epsilon of a threshold on the sum of rounded losses: post-processing, so that no accountant may report less."""
    edges = np.concatenate([[-np.inf], np.linspace(-9 * sigma, 1 + 9 * sigma, 20_001), [np.inf]])
    without, drawn = (-np.diff(norm.sf(edges, unit, sigma)) for unit in (0, 1))
    within, middles = (1 - rate) * without + rate * drawn, np.r_[edges[1], edges[1:-2] + edges[2:-1], 2 * edges[-2]] / 2
    losses = np.log1p(rate * np.expm1((middles - 0.5) / sigma**2))
    places = np.rint(losses / (0.05 * math.sqrt(within @ losses**2))).astype(int)
    first, spread = places.min(), math.sqrt(steps * (within @ places**2))
    period = next_fast_len(int(40 * spread) + np.ptp(places), real=True)
    start = int(steps * (within @ places) - period / 2)
    above = []
    for masses in (within, without):
        sums = irfft(rfft(np.bincount(places - first, masses), period) ** steps, period)
        above.append(np.cumsum(np.roll(sums, steps * first - start)[::-1]))
    known = (above[0] > delta) & (above[1] > 1e-3 * delta)
    return np.log((above[0] - delta)[known] / above[1][known]).max()


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [(1.1, 0.013, 1000, 1e-5), (4.0, 1e-3, 10**4, 1e-6), (10.0, 1e-3, 10**6, 1e-6)],
)
def test_over_many_steps_epsilon_lies_within_a_hundredth_of_a_lower_bound_and_below_renyi(sigma, rate, steps, delta):
    mechanism = SampledGaussian(sigma=sigma, rate=rate, steps=steps)
    found, below = mechanism.epsilon(delta), lower_bound(sigma, rate, steps, delta)
    assert below <= found < min(1.01 * below, mechanism.epsilon(delta, Method.RDP))
    history = gaussian_steps(sigma=sigma, rate=rate, steps=steps // 2)
    two = epsilon_of(ComposedDpEvent([history, history]), delta=delta, adjacency=ADD, interval=INTERVAL)
    assert two == pytest.approx(found, rel=1e-6)
    curve = mechanism.curve(found)
    assert delta <= curve.delta_add[curve.epsilons.index(found)] < 1.02 * delta


def test_calibration_returns_the_noise_of_the_epsilon():
    law = {"delta": 1e-6, "rate": 1e-3, "steps": 10**5}
    found = calibrate_sampled_gaussian(epsilon=0.3, **law)
    assert 0.999 * 0.3 < found.epsilon(1e-6) <= 0.3
    assert found.epsilon(0.9) == 0


@pytest.mark.parametrize(
    ("sigma", "rate", "delta"), [(4.0, 0.00033, 1e-12), (4.0, 0.00033, 1e-30), (1.0, 0.1, 1e-18), (0.028, 0.5, 1e-5)]
)
def test_tiny_deltas_and_huge_losses_are_met_from_above(sigma, rate, delta):
    """One sampled release with numbers of 50 digits."""
    epsilon = SampledGaussian(sigma=sigma, rate=rate, steps=1).epsilon(delta)
    with mpmath.workdps(50):
        cut = 0.5 + sigma**2 * mpmath.log(1 + mpmath.expm1(epsilon) / rate)
        tails = [mpmath.ncdf((unit - cut) / sigma) for unit in (0, 1)]
        exact = rate * tails[1] + (1 - rate) * tails[0] - mpmath.exp(epsilon) * tails[0]
    assert 0.999 * delta < exact <= delta


DELTA = 1e-5


@dataclass(frozen=True)
class Gaussian:
    """mu-GDP: composes exactly to sqrt(releases) mu."""

    mu: float
    pure_epsilon: float = math.inf

    def delta(self, epsilon):
        return delta_from_mu(self.mu, epsilon)


@pytest.mark.parametrize(("mu", "releases"), [(1.0, 1), (0.1, 100), (2e-3, 250_000), (0.05, 40_000)])
def test_gaussians_compose_to_their_exact_epsilon_and_never_below_it(mu, releases):
    exact = epsilon_from_mu(mu * math.sqrt(releases), DELTA)
    assert exact < many_epsilon(Gaussian(mu), releases=releases, delta=DELTA) < exact * 1.002


def test_randomised_response_is_what_enumeration_gives():
    once = bit_among(binomial(0, 0.5), epsilon=1.0)
    ones = CountPair(*(np.outer(np.outer(side, side).ravel(), side).ravel() for side in (once.p, once.q)))
    exact = ones.epsilon(0.01)
    assert exact - 1e-9 <= many_epsilon(once, releases=3, delta=0.01) < exact * 1.01


@pytest.mark.parametrize("releases", [1, 2, 3])
def test_a_few_pure_releases_never_cost_more_than_their_sum(releases):
    """Randomised response at 1 leaks tanh(1/2) at delta 0: dots alone gave 1.0109 for one of it at delta 1e-9."""
    once = bit_among(binomial(0, 0.5), epsilon=1.0)
    assert once.pure_epsilon == pytest.approx(1.0)
    found = many_epsilon(once, releases=releases, delta=1e-9)
    assert releases * (1 - 1e-3) < found <= releases * once.pure_epsilon
    curve = many_curve(once, releases=releases, reach=found, failure=1e-6)
    assert max(d for e, d in zip(curve.epsilons, curve.delta_add, strict=True) if e > releases) == 1e-6
    assert curve.delta_add[0] >= math.tanh(0.5)


def test_what_only_one_side_has_keeps_no_pure_epsilon():
    assert CountPair(np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.4, 0.1])).pure_epsilon == math.inf
    assert CountPair(np.array([0.5, 0.5]), np.array([0.5, 0.5]), lost=1e-9).pure_epsilon == math.inf
    assert CountPair(np.array([0.8, 0.2, 0.0]), np.array([0.2, 0.8, 0.0])).pure_epsilon == pytest.approx(math.log(4))


def test_five_rounds_of_clones_are_what_the_library_composes_from_all_outcomes():
    clients, epsilon0, interval = 8, 1.2, 1e-4
    truth, laws = expit(epsilon0), ({}, {})
    for copies in range(clients):
        for ones in range(copies + 2):
            weight = binom.pmf(copies, clients - 1, math.exp(-epsilon0))
            own, other = weight * binom.pmf(ones - 1, copies, 0.5), weight * binom.pmf(ones, copies, 0.5)
            laws[0][copies, ones] = math.log((1 - truth) * own + truth * other)
            laws[1][copies, ones] = math.log(truth * own + (1 - truth) * other)
    library = privacy_loss_distribution.from_two_probability_mass_functions(
        *laws, value_discretization_interval=interval
    ).self_compose(5)
    for delta in (1e-2, 1e-4, 1e-6):
        ours = many_epsilon(shuffled(clients=clients, epsilon0=epsilon0), releases=5, delta=delta)
        assert ours == pytest.approx(library.get_epsilon_for_delta(delta), rel=0.01)


def test_the_curve_is_the_gaussians_own_from_above():
    curve = many_curve(Gaussian(0.1), releases=100, reach=4.4)
    exact = np.array([delta_from_mu(1.0, epsilon) for epsilon in curve.epsilons])
    found = np.array(curve.delta_remove)
    assert (found >= exact).all()
    assert found == pytest.approx(exact, rel=0.02, abs=1e-10)
    assert 4.4 in curve.epsilons
    failing = many_curve(Gaussian(0.1), releases=100, reach=4.4, failure=1e-3)
    assert np.array(failing.delta_add) == pytest.approx(np.minimum(1, found + 1e-3))


@pytest.mark.parametrize(
    ("releases", "delta", "message"),
    [
        (0, DELTA, "releases must be a whole number >= 1, got 0"),
        (2, 0.0, r"delta must be in \(0, 1\)"),
        (2, 1e-12, "delta must be >= 1e-09 for 2 releases"),
        (10**8, 1e-7, "delta must be >= 4.0002e-07 for 100000000 releases"),
    ],
)
def test_what_cannot_be_composed_is_refused(releases, delta, message):
    with pytest.raises(ValueError, match=message):
        many_epsilon(Gaussian(0.1), releases=releases, delta=delta)


CUT_OFF = 1e-13


def looped(masses, times):
    total = np.ones(1)
    for _ in range(times):
        total = np.convolve(total, masses)
    return total


@pytest.mark.parametrize("times", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", ["even", "one end", "with zeros", "below one", "one place"])
def test_the_window_holds_the_masses_of_a_loop_of_convolutions(kind, times, rng):
    masses = {
        "even": np.full(50, 1 / 50),
        "one end": np.r_[1 - 1e-3, np.zeros(80), 1e-3],
        "with zeros": np.where(np.arange(60) % 2, 1 / 30, 0.0),
        "below one": 0.9 * rng.dirichlet(np.ones(40)),
        "one place": np.ones(1),
    }[kind]
    first, found = convolved([(masses, times)], CUT_OFF)
    exact = looped(masses, times)
    assert first >= 0
    assert first + len(found) <= len(exact)
    np.testing.assert_allclose(found, exact[first : first + len(found)], atol=1e-12)
    assert exact[:first].sum() + exact[first + len(found) :].sum() <= CUT_OFF


def test_a_long_sum_has_the_window_and_the_masses_of_dp_accounting():
    losses = np.exp(-0.5 * ((np.arange(4000) - 1500) / 300) ** 2)
    losses /= losses.sum()
    theirs, masses = common.self_convolve(losses, 500, CUT_OFF)
    first, found = convolved([(losses, 500)], CUT_OFF)
    assert abs(first - theirs) <= 100
    assert len(found) < 1_999_501 / 10
    shared = min(len(found), len(masses)) - 1
    np.testing.assert_allclose(
        found[max(0, theirs - first) :][:shared], masses[max(0, first - theirs) :][:shared], atol=1e-13
    )


def test_masses_of_zero_stay_zero():
    first, found = convolved([(np.zeros(30), 5)], CUT_OFF)
    assert (first, len(found)) == (0, 146)
    assert not found.any()
