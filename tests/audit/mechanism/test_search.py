"""The search finds leaks of other shapes than a shift, and their correct versions are not refuted."""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism

TRIALS = 10_000


def of_bits(bits):
    """Laplace noise of scale 1 from seeds of so many bits."""

    def mechanism(x, rng):
        seeds = rng.integers(0, 2**bits, size=x.shape).astype(np.uint64)
        mixed = (seeds ^ (seeds >> np.uint64(7))) * np.uint64(0x9E3779B97F4A7C15)
        share = ((mixed >> np.uint64(12)).astype(float) + 0.5) / 2.0**52
        return x - np.sign(share - 0.5) * np.log1p(-2 * np.abs(share - 0.5))

    return mechanism


def sometimes(share, then):
    def mechanism(x, rng):
        noisy = x + rng.laplace(size=x.shape)
        return np.where(rng.random(x.shape) < share, then(x, rng), noisy)

    return mechanism


def in_pairs(second):
    """A fair coin, and ``second`` of the input and the coin."""

    def mechanism(x, rng):
        coin = rng.integers(0, 2, size=x.shape)
        return np.stack([coin, second(x.astype(int), coin, rng)], axis=1)

    return mechanism


def coins(x, rng, epsilon=1.0):
    return np.where(rng.random(x.shape) < 1 / (1 + math.exp(-epsilon)), x, 1 - x)


def offset(scale):
    """Two numbers around a far random place; their difference is the input and Laplace noise."""

    def mechanism(x, rng):
        place = 100 * rng.normal(size=x.shape)
        return np.stack([place, place + x + rng.laplace(scale=scale, size=x.shape)], axis=1)

    return mechanism


def wide(scale):
    """Two hundred numbers, of which one depends on the input."""

    def mechanism(x, rng):
        out = rng.laplace(size=(len(x), 200))
        out[:, 117] = x + scale * out[:, 117]
        return out

    return mechanism


def cells(value):
    """A flag; where it is set a noisy number, else ``value`` of the input."""

    def mechanism(x, rng):
        flag = rng.random(x.shape) < 0.5
        return np.stack([flag, np.where(flag, x + rng.laplace(size=x.shape), value(x, rng))], axis=1)

    return mechanism


PAIRS = {
    "seeds of few bits": (of_bits(14), of_bits(60)),
    "the input once in a thousand": (
        sometimes(0.002, lambda x, rng: x),
        sometimes(0.002, lambda x, rng: np.zeros(x.shape)),
    ),
    "a narrow peak once in two hundred": (
        sometimes(0.005, lambda x, rng: x + 1e-7 * rng.normal(size=x.shape)),
        sometimes(0.005, lambda x, rng: 1e-7 * rng.normal(size=x.shape)),
    ),
    "missing on one input": (
        sometimes(0.02, lambda x, rng: np.where(x == 1, np.nan, 0.0)),
        sometimes(0.02, lambda x, rng: np.full(x.shape, np.nan)),
    ),
    "xor": (
        in_pairs(lambda x, coin, rng: coin ^ coins(x, rng, 2.0)),
        in_pairs(lambda x, coin, rng: coin ^ coins(x, rng, 0.9)),
    ),
    "difference": (offset(0.3), offset(1.2)),
    "thin coordinate": (wide(0.3), wide(1.2)),
    "flag and number": (cells(lambda x, rng: coins(x, rng, 2.0)), cells(lambda x, rng: coins(x, rng, 0.9))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_leak_is_refuted_and_its_correct_version_is_not(name):
    broken, correct = PAIRS[name]
    # An answer in a thousand takes more trials to be worth an event.
    trials = 60_000 if "once" in name or "missing" in name else TRIALS
    for mechanism, verdict in ((broken, Verdict.REFUTED), (correct, Verdict.NOT_REFUTED)):
        claim = Claim.stated(1.05)
        finding = audit_mechanism(mechanism, claim, inputs=(0.0, 1.0), trials=trials, batched=True)
        assert finding.verdict is verdict, finding.line()


@pytest.mark.simulations
def test_a_mechanism_that_ignores_its_input_is_refuted_no_oftener_than_alpha(most_false_alarms):
    # Sequences with flags and repeated values, so that every kind of score is tried.
    def mechanism(x, rng):
        above = rng.random((len(x), 6)) < 0.3
        return np.where(
            np.cumsum(above, axis=1) - above < 1, np.where(above, rng.integers(0, 9, (len(x), 6)), -1), np.nan
        )

    alarms = 0
    for seed in range(100):
        finding = audit_mechanism(mechanism, Claim.stated(1.0), inputs=(0.0, 1.0), trials=2000, seed=seed, batched=True)
        alarms += finding.measurement.epsilon_low > 0
    assert alarms <= most_false_alarms(100, 0.05)


def test_independent_answers_add_up():
    # Ten answers by randomised response at epsilon .2 each; the inputs differ in all, so that epsilon is 2.
    def mechanism(x, rng):
        return np.where(rng.random(x.shape) < 1 / (1 + math.exp(-0.2)), x, 1 - x)

    inputs = (np.zeros(10), np.ones(10))
    found = audit_mechanism(mechanism, Claim.stated(2.0), inputs=inputs, trials=20_000, batched=True).measurement
    assert 0.6 < found.epsilon_low < 2
