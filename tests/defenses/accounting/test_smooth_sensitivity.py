"""Sanitised divergences: every histogram of a few teachers listed, and the published Gaussians by quadrature."""

import itertools
import math

import numpy as np
import pytest
from fedassay.defenses.accounting.votes import GapBound, SmoothRelease, data_dependent_rdp
from scipy.integrate import quad
from scipy.stats import norm

TEACHERS, CLASSES = 9, 3
# So little noise that nine teachers are enough for the bound to fall with the gap.
BOUND = GapBound(teachers=TEACHERS, classes=CLASSES, sigma=1.2, order=2.0)


def histograms():
    for first, second in itertools.product(range(TEACHERS + 1), repeat=2):
        if first + second <= TEACHERS:
            yield first, second, TEACHERS - first - second


def neighbours(one):
    """Every histogram of which one vote differs, and the histogram itself."""
    yield one
    for source, target in itertools.permutations(range(CLASSES), 2):
        if one[source]:
            other = list(one)
            other[source] -= 1
            other[target] += 1
            yield tuple(other)


def test_the_bound_in_the_gap_is_no_smaller_than_that_of_the_votes_and_falls():
    assert (np.diff(BOUND.by_gap) <= 0).all()
    assert BOUND.by_gap[-1] < 0.5 * BOUND.by_gap[0]
    for one in histograms():
        assert BOUND.total([one]) >= data_dependent_rdp([one], sigma=1.2, order=2.0) - 1e-12


@pytest.mark.parametrize("beta", [0.05, 0.4, 2.0])
def test_of_all_pairs_of_neighbours_none_breaks_the_definition_of_a_smooth_sensitivity(beta):
    """Two queries, each with any histogram: the sum changes by at most S, and S by at most a factor e^beta."""
    every = {one: BOUND.total([one]) for one in histograms()}
    smooth = {
        pair: BOUND.smooth_sensitivity(np.array(pair), beta)
        for pair in itertools.combinations_with_replacement(every, 2)
    }
    largest = 0.0
    for one, other in smooth:
        for first, second in itertools.product(neighbours(one), neighbours(other)):
            change = abs(every[one] + every[other] - every[first] - every[second])
            near = smooth[tuple(sorted((first, second)))]
            assert change <= min(smooth[one, other], near) + 1e-12
            assert smooth[one, other] <= math.exp(beta) * near * (1 + 1e-12)
            largest = max(largest, change / smooth[one, other])
    # Else the bound would be of no use.
    assert largest > 0.7


def test_agreement_makes_the_sensitivity_small():
    many = GapBound(teachers=1000, classes=10, sigma=20.0, order=8.0)
    agreed, split = np.zeros((50, 10)), np.zeros((50, 10))
    agreed[:, 0], split[:, 0], split[:, 1] = 1000, 520, 480
    assert many.smooth_sensitivity(agreed, 0.02) < 1e-3 * many.smooth_sensitivity(split, 0.02)
    # However far a change is away, beta decides how much it counts.
    assert many.smooth_sensitivity(agreed, 1e-6) == pytest.approx(many.smooth_sensitivity(split, 1e-6), rel=1e-2)


def divergence(order, ratio, shift):
    """Renyi divergence of N(0, 1) from N(shift, ratio^2), integrated."""

    def inside(x):
        return math.exp(order * norm.logpdf(x) + (1 - order) * norm.logpdf(x, shift, ratio))

    return math.log(quad(inside, -40, 40, limit=400, points=[0.0, shift])[0]) / (order - 1)


@pytest.mark.simulations
@pytest.mark.parametrize("order", [1.5, 3.0, 6.0])
def test_the_published_number_diverges_by_no_more_than_stated(order):
    """Over all ratios of the deviations and the largest shift that each of them allows."""
    release = SmoothRelease(beta=0.05, noise=4.0, shortfall=0.01)
    assert release.margin == pytest.approx(2.326, abs=1e-3)
    largest = (1 + release.margin * 4.0 * math.expm1(0.05)) / 4.0
    found = [
        divergence(order, ratio, min(1.0, ratio) * largest * part)
        for ratio in np.exp(np.linspace(-0.05, 0.05, 21))
        for part in (0.0, 0.5, 1.0)
    ]
    bound = release.rdp(order)
    assert max(found) <= bound * (1 + 1e-9)
    assert max(found) > 0.8 * bound


def test_orders_beyond_the_smoothness_have_no_divergence():
    release = SmoothRelease(beta=0.05, noise=4.0, shortfall=0.01)
    assert release.rdp(10.0) < math.inf
    assert release.rdp(10.6) == math.inf


def test_the_published_number_lies_below_the_true_one_as_seldom_as_stated():
    release = SmoothRelease(beta=0.05, noise=4.0, shortfall=0.01)
    numbers = release.sample(2.0, 0.1, np.random.default_rng(0).standard_normal(100_000))
    assert (numbers < 2.0).mean() == pytest.approx(0.01, abs=5 * math.sqrt(0.01 / 100_000))
