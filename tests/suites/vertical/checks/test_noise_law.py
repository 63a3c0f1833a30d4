"""Drawn noise is compared with its published distribution: by its shape, and by values that repeat."""

from collections import Counter

import numpy as np
import pytest
import torch
from fedassay.audit.ledger import SUITE
from fedassay.fl.vertical.protection import Noise
from fedassay.suites.vertical.checks.noise_law import _longest, least_p
from scipy.stats import kstest

DRAWS, NUMBERS = 4000, 30
DRAWN = {Noise.GAUSSIAN: np.random.Generator.standard_normal, Noise.LAPLACE: lambda rng, size: rng.laplace(size=size)}
MESSAGE = np.linspace(-3, 3, NUMBERS)


def p(noise, kind, *, message=MESSAGE):
    return least_p(torch.from_numpy(np.float32(message + noise)).double(), kind)


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_noise_of_the_published_kind_is_likely_at_every_scale(kind, scale):
    found = [p(scale * DRAWN[kind](np.random.default_rng(seed), (DRAWS, NUMBERS)), kind) for seed in range(8)]
    # Of 48 honest messages in all, one in 40 is below 5e-4 by chance.
    assert min(found) > 5e-4


@pytest.mark.parametrize("kind", DRAWN)
def test_noise_of_the_other_kind_of_equal_variance_is_not(kind):
    other = next(one for one in DRAWN if one is not kind)
    noise = DRAWN[other](np.random.default_rng(1), (DRAWS, NUMBERS))
    assert p(noise, kind) < SUITE.level("vertical noise")


def test_linear_maps_of_gaussian_noise_are_gaussian():
    noise = np.random.default_rng(2).standard_normal((DRAWS, NUMBERS))
    assert p(noise - noise.mean(1, keepdims=True), Noise.GAUSSIAN) > 1e-3
    assert p(noise + noise[:, :1], Noise.GAUSSIAN) > 1e-3


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_numbers_that_are_sometimes_exact_repeat(share):
    """With 1 % of exact values the distance shows nothing."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((DRAWS, NUMBERS))
    noise[:, 7] *= (rng.random(DRAWS) >= share) / np.sqrt(1 - share)
    assert p(noise, Noise.GAUSSIAN) < SUITE.level("vertical noise")
    if share < 0.1:
        assert kstest(noise[:, 7] / noise[:, 7].std(), "norm").pvalue > 0.1


def test_a_value_that_single_precision_repeats_is_no_atom():
    """Numbers of 1000 with noise of .001 have some 30 values."""
    noise = 1e-3 * np.random.default_rng(4).standard_normal((DRAWS, NUMBERS))
    values = np.float32(1000.0 + noise)
    assert np.unique(values[:, 0]).size < 200
    assert p(noise, Noise.GAUSSIAN, message=np.full(NUMBERS, 1000.0)) > SUITE.level("vertical noise")


def test_a_message_without_any_noise_is_left_to_the_other_checks():
    assert least_p(torch.zeros(DRAWS, 0), Noise.GAUSSIAN) == 1.0


@pytest.mark.parametrize(
    "row", [[1.0], [1.0, 2.0, 2.0, 2.0, 5.0, 5.0], [3.0, 3.0, 4.0], [1.0, 2.0, 3.0, 3.0], [7.0] * 5]
)
def test_the_most_frequent_value_is_counted_as_a_counter_counts_it(row):
    (found,) = _longest(np.array([row]))
    assert found == max(Counter(row).values())
