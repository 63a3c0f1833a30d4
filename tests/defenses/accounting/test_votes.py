"""Labels whatever the votes: closed forms, dp-accounting's events, and exact laws of neighbouring histograms."""

import math

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, SelfComposedDpEvent
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import Method, epsilon_of, renyi_divergence
from fedassay.defenses.accounting.votes import label_noise, laplace_epsilon, laplace_scale
from fedassay.defenses.transfer.defense import GaussianMax, LaplaceMax
from scipy.special import log_ndtr

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
