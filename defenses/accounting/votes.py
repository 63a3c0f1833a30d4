"""Account for released labels of teachers' votes, whatever the votes are: the sensitivities of a histogram of votes.

One teacher that votes otherwise takes a vote from one label and gives it to another: two counts change by one.
"""

import math

import dp_accounting
import numpy as np
from dp_accounting.dp_event import LaplaceDpEvent, SelfComposedDpEvent
from scipy.optimize import brentq

from ...audit.claim import Adjacency
from ..defense import check_epsilon, check_whole
from .accountant import epsilon_of
from .gaussian import gaussian_noise

VOTE_L1, VOTE_L2 = 2.0, math.sqrt(2)
"""L1 and L2 distance of two histograms of which one teacher's vote differs."""
_INTERVAL = 1e-3


def label_noise(*, epsilon: float, delta: float, labels: int) -> float:
    """Return the standard deviation of the Gaussian noise on each count at which ``labels`` noisy maxima together
    satisfy (epsilon, delta) (GNMax: Papernot et al. 2018, Section 4.1; analytic Gaussian).

    Each maximum has the Renyi divergence ``order / sigma^2``, that of a Gaussian with noise multiplier sigma / sqrt 2.
    """
    return VOTE_L2 * gaussian_noise(epsilon=epsilon, delta=delta, releases=labels)


def laplace_event(scale: float, labels: int) -> dp_accounting.DpEvent:
    """Return ``labels`` noisy maxima with Laplace noise of this scale as an event: two counts of each change by one."""
    return SelfComposedDpEvent(LaplaceDpEvent(scale), 2 * labels)


def laplace_epsilon(scale: float, *, delta: float, labels: int) -> float:
    """Compute epsilon at ``delta`` of ``labels`` noisy maxima with Laplace noise of this ``scale`` on every count.

    At delta 0 it is 2 / scale for each; otherwise the smaller one of this and the composition of the noised counts by
    privacy-loss distributions.
    """
    pure = VOTE_L1 / scale * labels
    if delta == 0:
        return pure
    event = laplace_event(scale, labels)
    return min(pure, epsilon_of(event, delta=delta, adjacency=Adjacency.ADD_REMOVE, interval=_INTERVAL))


def laplace_scale(*, epsilon: float, delta: float, labels: int) -> float:
    """Return the smallest scale (to 1e-4 of it) at which ``labels`` noisy maxima with Laplace noise together satisfy
    (epsilon, delta).
    """
    check_epsilon(epsilon)
    check_whole("labels", labels)
    pure = VOTE_L1 * labels / epsilon

    def excess(scale: float) -> float:
        return laplace_epsilon(scale, delta=delta, labels=labels) - epsilon

    # With a delta less noise may be enough; with half of it at each of many labels it never is below the square root.
    least = pure / max(2.0, 4 * math.sqrt(labels))
    if delta == 0 or excess(pure * (1 - 1e-4)) > 0:
        return pure
    while excess(least) <= 0:
        least /= 2
    found = float(brentq(excess, least, pure, rtol=1e-4))
    # The root may lie on either side within the tolerance; more noise is on the safe one.
    return min(pure, float(np.nextafter(found * (1 + 2e-4), math.inf)))
