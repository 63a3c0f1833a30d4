"""Rows of one call that depend on each other are detected; independent rows never are, whatever their law."""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.mechanism.mechanism import audit_mechanism
from fedassay.audit.mechanism.trial_stream import MOST_TESTED, call_effect
from scipy.stats import f_oneway, rankdata


def yes_or_no(x, rng):
    return np.where(rng.random(x.shape) < math.e / (1 + math.e), x, 1 - x)


def among_ten(x, rng):
    other = rng.integers(0, 9, size=x.shape)
    return np.where(rng.random(x.shape) < math.e / (math.e + 9), x, other + (other >= x))


HONEST = {
    "gaussian": lambda x, rng: x + rng.normal(size=x.shape),
    "laplace": lambda x, rng: x + rng.laplace(size=x.shape),
    "cauchy": lambda x, rng: x + rng.standard_cauchy(size=x.shape),
    "randomised response": yes_or_no,
    "randomised response over ten": among_ten,
    "geometric": lambda x, rng: x + rng.geometric(0.6, size=x.shape) - rng.geometric(0.6, size=x.shape),
    "rarely another": lambda x, rng: x + (rng.random(x.shape) < 0.02),
    "vectors": lambda x, rng: x[:, None] + rng.normal(size=(len(x), 40)),
    "constant": lambda x, rng: 0 * x,
    "the input": lambda x, rng: x,
    "words": lambda x, rng: np.where(rng.random(x.shape) < 0.7, "yes", "no"),
}


def audit(mechanism, seed=0):
    return audit_mechanism(mechanism, Claim.stated(1.0), inputs=(0, 1), trials=40, seed=seed, batched=True)


@pytest.mark.long
@pytest.mark.parametrize("name", HONEST)
def test_independent_noise_is_never_refused(name):
    # 200 seeds, two inputs each: a false refusal has chance 2e-7 at most, 40 coordinates included.
    for seed in range(200):
        assert audit(HONEST[name], seed).measurement.n0 == 40


SHARING = {
    "all but a trace": lambda x, rng: x + rng.laplace() + 1e-6 * rng.normal(size=x.shape),
    "nine tenths": lambda x, rng: x + 0.95 * rng.normal() + 0.31 * rng.normal(size=x.shape),
    "half": lambda x, rng: x + rng.normal() + rng.normal(size=x.shape),
    "one of the inputs": lambda x, rng: x + x[0] * rng.laplace() + 1e-6 * rng.normal(size=x.shape),
    "one coordinate": lambda x, rng: np.c_[
        rng.normal(size=x.shape), x + rng.normal() + 1e-3 * rng.normal(size=x.shape)
    ],
    "by a permutation": lambda x, rng: rng.permutation(np.arange(len(x))) * 1e-9 + x + rng.laplace(),
    "whole numbers": lambda x, rng: 100 * rng.integers(0, 99) + rng.integers(0, 9, size=x.shape) + x,
}


@pytest.mark.parametrize("name", SHARING)
def test_rows_that_share_most_of_their_noise_are_refused(name):
    for seed in range(10):
        with pytest.raises(ValueError, match=r"rows of one call depend on each other \(p-value .* over 16 calls of 16"):
            audit(SHARING[name], seed)


def test_the_p_value_is_that_of_an_analysis_of_variance_of_ranks():
    outputs = np.random.default_rng(0).integers(0, 9, size=(16, 16, 2, 2)) + np.arange(16).reshape(-1, 1, 1, 1) // 4
    expected = [f_oneway(*rankdata(column).reshape(16, 16)).pvalue for column in outputs.reshape(256, 4).T]
    np.testing.assert_allclose(call_effect(outputs), expected, rtol=1e-9)


def test_constants_tell_nothing_calls_that_differ_all_and_few_coordinates_are_tested():
    assert call_effect(np.full((16, 16), 3.0)).tolist() == [1.0]
    assert call_effect(np.arange(16).repeat(16).reshape(16, 16)).tolist() == [0.0]
    assert call_effect(np.zeros((16, 16, 99))).shape == (MOST_TESTED,)


def test_p_values_of_equal_laws_are_even():
    rng = np.random.default_rng(1)
    found = np.array([call_effect(rng.standard_cauchy((16, 16)))[0] for _ in range(2000)])
    # Three standard errors are .02 and .015.
    assert abs(np.mean(found < 0.1) - 0.1) < 0.02
    assert abs(np.mean(found < 0.05) - 0.05) < 0.015
