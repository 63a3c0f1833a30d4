"""Labels whatever the votes: closed forms, dp-accounting's events, and exact laws of neighbouring histograms.

GNMax by its votes: error probabilities by simulation, divergences by quadrature, and never above the general one.

Sanitised divergences: every histogram of a few teachers listed, and the published Gaussians by quadrature.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, SelfComposedDpEvent
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import Method, epsilon_from_rdp, epsilon_of, renyi_divergence
from fedassay.defenses.accounting.votes import (
    GapBound,
    SmoothRelease,
    data_dependent_epsilon,
    data_dependent_rdp,
    gnmax_rdp,
    label_noise,
    laplace_epsilon,
    laplace_scale,
    log_error,
)
from fedassay.defenses.transfer.defense import GaussianMax, LaplaceMax
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfc, log_ndtr, logsumexp
from scipy.stats import beta, norm

ONE = Adjacency.REPLACE_ONE


def test_one_label_has_the_divergence_order_over_variance():
    """Its two changed counts make a Gaussian with noise multiplier sigma / sqrt 2."""
    sigma = 7.0
    for order in (2.0, 5.0, 40.0):
        event = GaussianDpEvent(sigma / math.sqrt(2))
        assert renyi_divergence(event, order=order, adjacency=ONE) == pytest.approx(order / sigma**2)


@pytest.mark.parametrize(("epsilon", "labels"), [(0.5, 1), (2.0, 100), (8.0, 1000)])
def test_the_noise_is_that_of_the_librarys_composition(epsilon, labels):
    sigma = label_noise(epsilon=epsilon, delta=1e-5, labels=labels)
    event = SelfComposedDpEvent(GaussianDpEvent(sigma / math.sqrt(2)), labels)
    assert epsilon_of(event, delta=1e-5, adjacency=ONE) == pytest.approx(epsilon, rel=2e-3, abs=2e-3)
    # Renyi accounting, as in the paper, gives a larger epsilon for the same noise.
    assert epsilon_of(event, delta=1e-5, adjacency=ONE, method=Method.RDP) > epsilon
    assert epsilon_from_mu(math.sqrt(2 * labels) / sigma, 1e-5) == pytest.approx(epsilon)


def losses(law, here, there):
    one, other = (law.log_probabilities(np.array(counts, dtype=float)) for counts in (here, there))
    return np.abs(one - other).max()


def test_a_laplace_maximum_comes_as_near_to_two_over_scale_as_one_likes_and_never_above():
    """One vote moves from the second to the first label. The further behind a label is, the more its share changes:
    two exponential tails, of which one moves up and one down.
    """
    law = LaplaceMax(5.0)
    found = [losses(law, (50 + gap, 50, 50), (51 + gap, 49, 50)) for gap in (0, 5, 20, 80, 320)]
    assert all(loss < 2 / 5 * (1 + 1e-6) for loss in found)
    assert np.all(np.diff(found) > 0)
    assert found[-1] > 0.98 * 2 / 5


def test_half_the_published_epsilon_would_be_refuted_by_the_law_itself():
    """Epsilon 1 / scale holds for counts of which one changes (a teacher more or less), not for a changed vote."""
    law = LaplaceMax(5.0)
    assert losses(law, (60, 50), (61, 50)) < 1 / 5 < losses(law, (60, 50), (61, 49))


@pytest.mark.parametrize("labels", [1, 10, 200])
def test_laplace_labels_compose_by_sums_or_by_their_losses(labels):
    assert laplace_epsilon(20.0, delta=0.0, labels=labels) == pytest.approx(labels / 10)
    assert laplace_scale(epsilon=2.0, delta=0.0, labels=labels) == pytest.approx(labels)
    scale = laplace_scale(epsilon=2.0, delta=1e-5, labels=labels)
    assert laplace_epsilon(scale, delta=1e-5, labels=labels) <= 2.0
    assert laplace_epsilon(scale * 0.999, delta=1e-5, labels=labels) > 2.0 or scale == labels
    assert scale <= labels
    assert labels < 200 or scale < 0.7 * labels


@pytest.mark.parametrize("kind", [GaussianMax, LaplaceMax])
def test_the_law_of_the_largest_count_is_that_of_its_draws(kind):
    counts, law = np.array([12.0, 10.0, 3.0]), kind(4.0)
    noisy = counts + 4.0 * law.draw((200_000, 3), np.random.default_rng(0))
    shares = np.bincount(noisy.argmax(-1), minlength=3) / 200_000
    np.testing.assert_allclose(np.exp(law.log_probabilities(counts)), shares, atol=5 * math.sqrt(0.25 / 200_000))


def test_of_two_labels_the_law_is_the_normal_tail():
    found = GaussianMax(3.0).log_probabilities([[10.0, 4.0], [90.0, 4.0]])
    gaps = np.array([6.0, 86.0]) / (3 * math.sqrt(2))
    np.testing.assert_allclose(found[:, 1], log_ndtr(-gaps), rtol=1e-6)


ORDERS = [1.5, 2.0, 4.0, 8.0, 20.0]


@pytest.mark.parametrize("counts", [(30, 20, 0), (25, 24, 1), (12, 12, 12), (40, 5, 5)])
def test_another_label_than_the_most_voted_one_is_no_likelier_than_the_bound(counts):
    """A lower confidence bound (error 1e-6) of 200,000 draws stays below it; between two labels it is exact."""
    sigma, draws = 8.0, 200_000
    noisy = np.array(counts) + sigma * np.random.default_rng(0).standard_normal((draws, 3))
    errors = int((noisy.argmax(-1) != 0).sum())
    bound = math.exp(log_error(counts, sigma))
    assert beta.ppf(1e-6, errors, draws - errors + 1) <= bound
    two = math.exp(log_error(counts[:2], sigma))
    found = (noisy[:, 1] > noisy[:, 0]).mean()
    assert found == pytest.approx(two, abs=5 * math.sqrt(0.25 / draws))


def test_the_bound_is_the_papers_formula():
    counts = np.array([[30.0, 22.0, 10.0], [25.0, 25.0, 1.0]])
    printed = [sum(erfc((row[0] - other) / 16.0) / 2 for other in row[1:]) for row in counts]
    np.testing.assert_allclose(np.exp(log_error(counts, 8.0)), printed)
    # Far below double precision the logarithm is still there: ln of a normal tail at -z is about -z^2 / 2.
    assert log_error([8000.0, 0.0], 8.0) == pytest.approx(-(1000**2) / 4, rel=1e-4)


def naive_rdp(q, sigma, order):
    """Theorem 6 as printed."""
    m2 = sigma * math.sqrt(math.log(1 / q))
    m1 = m2 + 1
    e1, e2 = m1 / sigma**2, m2 / sigma**2
    if not (m2 > 1 and order <= m1 and q <= math.exp((m2 - 1) * e2) / (m1 / (m1 - 1) * m2 / (m2 - 1)) ** m2):
        return order / sigma**2
    a = (1 - q) / (1 - (q * math.exp(e2)) ** ((m2 - 1) / m2))
    b = math.exp(e1) / q ** (1 / (m1 - 1))
    found = math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
    return min(found, order / sigma**2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sigma", [5.0, 20.0])
def test_the_divergence_is_theorem_6_as_printed(sigma, order):
    for q in (0.5, 0.1, 1e-2, 1e-4, 1e-8, 1e-12):
        assert float(gnmax_rdp(math.log(q), sigma=sigma, order=order)) == pytest.approx(
            naive_rdp(q, sigma, order), rel=1e-6, abs=1e-12
        )


def moved(counts):
    """All histograms of which one vote differs."""
    for source in range(len(counts)):
        for target in range(len(counts)):
            if source != target and counts[source] > 0:
                other = list(counts)
                other[source] -= 1
                other[target] += 1
                yield other


@pytest.mark.parametrize("sigma", [3.0, 6.0])
@pytest.mark.parametrize("counts", [(40, 5, 5), (30, 12, 8), (26, 22, 2), (17, 17, 16), (45, 3, 2), (48, 1, 1)])
def test_no_neighbour_is_further_away_than_the_bound_says(counts, sigma):
    """The exact divergence of the label's law, by quadrature, to every histogram of which one vote differs, both ways
    round for the general bound and from these votes for the one that depends on them.
    """
    law = GaussianMax(sigma)
    here = law.log_probabilities(np.array(counts, dtype=float))
    bounds = {order: float(gnmax_rdp(log_error(counts, sigma), sigma=sigma, order=order)) for order in ORDERS}
    for other in moved(counts):
        there = law.log_probabilities(np.array(other, dtype=float))
        for order, bound in bounds.items():
            exact = logsumexp(order * here + (1 - order) * there) / (order - 1)
            assert exact <= bound * (1 + 1e-6) + 1e-9
            back = logsumexp(order * there + (1 - order) * here) / (order - 1)
            assert back <= order / sigma**2 * (1 + 1e-6)


@given(log_q=st.floats(-1e4, 0.0), less=st.floats(0.0, 10.0), sigma=st.floats(0.5, 500.0), order=st.floats(1.01, 300.0))
def test_it_is_never_above_the_data_independent_one_and_never_negative(log_q, less, sigma, order):
    bound = float(gnmax_rdp(log_q, sigma=sigma, order=order))
    assert 0 <= bound <= order / sigma**2


def test_agreement_makes_it_small_and_more_of_it_never_larger_where_the_theorem_applies():
    """The theorem's condition is that the bound grows with q."""
    bounds = gnmax_rdp(np.linspace(-200, -10, 400), sigma=20.0, order=5.0)
    applied = bounds < 5.0 / 400 * (1 - 1e-9)
    assert applied.sum() > 200
    assert (np.diff(bounds[applied]) >= 0).all()
    assert bounds[0] < 1e-6


def test_the_epsilon_of_votes_is_that_of_their_divergences_and_at_a_tie_the_general_one():
    split, agreed = np.full((20, 2), 25.0), np.tile([50.0, 0.0], (20, 1))
    general = epsilon_from_rdp(lambda order: 20 * order / 36, 1e-5)
    assert data_dependent_epsilon(split, sigma=6.0, delta=1e-5) == pytest.approx(general)
    assert data_dependent_epsilon(agreed, sigma=6.0, delta=1e-5) < general / 3
    both = data_dependent_rdp(np.concatenate([split, agreed]), sigma=6.0, order=4.0)
    parts = [data_dependent_rdp(votes, sigma=6.0, order=4.0) for votes in (split, agreed)]
    assert both == pytest.approx(sum(parts))


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


@pytest.mark.parametrize(("lead", "loss"), [(1, 1.489), (9, 1.833), (99, 1.980)])
def test_the_overviews_noise_on_votes_is_worth_twice_its_epsilon(lead, loss):
    """Laplace noise of scale 1 / epsilon on two counts, at epsilon 1: the class that trails by ``lead`` votes is
    released with probability e^-lead (1 + lead / 2) / 2, and one teacher that votes otherwise makes the lead two more.
    """

    def released(behind):
        return math.exp(-behind) * (1 + behind / 2) / 2

    assert math.log(released(lead) / released(lead + 2)) == pytest.approx(loss, abs=1e-3)
    noise = np.random.default_rng(0).laplace(size=(200_000, 2))
    assert (noise[:, 0] - noise[:, 1] > 1).mean() == pytest.approx(released(1), abs=0.005)
