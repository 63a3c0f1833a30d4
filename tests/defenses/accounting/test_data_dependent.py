"""GNMax by its votes: error probabilities by simulation, divergences by quadrature, and never above the general one."""

import math

import numpy as np
import pytest
from fedassay.defenses.accounting.accountant import epsilon_from_rdp
from fedassay.defenses.accounting.votes import data_dependent_epsilon, data_dependent_rdp, gnmax_rdp, log_error
from fedassay.defenses.transfer.defense import GaussianMax
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfc, logsumexp
from scipy.stats import beta

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
