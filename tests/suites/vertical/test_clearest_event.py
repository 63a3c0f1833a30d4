"""Scores that see places, repetitions and sizes are added to the linear one where a pilot shows the need."""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.pairs import pair_of_labels
from fedassay.suites.vertical.runs import measured_in_runs
from fedassay.suites.vertical.scores import Places, clearest_event
from toy_vertical import LOGISTIC, label_case, toy_vertical

TASK, PLAN = toy_vertical(LOGISTIC, learning_rate=0.01)
CLAIM = Claim.stated(2.0, 1e-5, unit="label", observer=PASSIVE_PARTY, rounds=PLAN.epochs)
SCALE = math.sqrt(2 * PLAN.epochs) / mu_from_epsilon(2.0, 1e-5)


class OnResiduals(VerticalProtection):
    """A function of residuals and of Gaussian noise that is large enough for the claim."""

    def __init__(self, function):
        self.function = function

    def residuals(self, values, context, rng):
        return self.function(values, SCALE * normal(rng, tuple(values.shape)))


def measured(function):
    case = label_case(OnResiduals(function), epsilon=2.0, delta=1e-5, federation=(TASK, PLAN))
    return measured_in_runs(case, [pair_of_labels(TASK, Streams(0))], replicas=1500, pilot=1000, alpha=0.01)


BROKEN = {
    "only the number of the largest raw size": lambda raw, noise: (
        noise * (raw.abs() == raw.abs().amax(-1, keepdim=True))
    ),
    # Times .6, because the two labels' residuals differ by 1.
    "whole-number noise": lambda raw, noise: 0.6 * raw + (3 * noise).round(),
    "noise of two sizes": lambda raw, noise: raw + noise * (1 + 4 * (raw < 0)),
    "half of the numbers without noise": lambda raw, noise: raw + math.sqrt(2) * noise * (noise.roll(1, -1) > 0),
}
HONEST = {
    "noise on all": lambda raw, noise: raw + noise,
    "only the largest noised number": lambda raw, noise: (
        (raw + noise) * ((raw + noise).abs() == (raw + noise).abs().amax(-1, keepdim=True))
    ),
    "rounded after the noise": lambda raw, noise: (raw + noise).round(),
}


@pytest.mark.simulations
@pytest.mark.parametrize("name", BROKEN)
def test_what_no_linear_score_sees_refutes_the_claim(name):
    assert measured(BROKEN[name]).epsilon_low > 2.0


@pytest.mark.simulations
@pytest.mark.parametrize("name", HONEST)
def test_a_claim_that_holds_is_tested_by_the_linear_scores_alone(name):
    """No further score has a share of alpha, so these tests lose nothing."""
    found = measured(HONEST[name])
    assert found.epsilon_low <= 2.0
    assert found.comparisons == 2


@pytest.mark.simulations
def test_equal_groups_rarely_show_an_event():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(40):
        out, within = rng.standard_normal((2, 400, 6))
        found += clearest_event(out, within, CLAIM, trials=500, alpha=0.01) is not None
    assert found == 0


def test_places_are_the_largest_and_the_fractional_parts():
    rows = Places().of(np.array([[1.5, -3.0, 0.0]]))
    np.testing.assert_array_equal(rows, [[0.5, 1, 0, 0, 1, 0, 0.5, 0, 0]])
    assert not Places().of(np.zeros((1, 2)))[0, :2].any()


def test_runs_that_all_diverged_show_no_event():
    nothing = np.full((50, 3), np.nan)
    assert clearest_event(nothing, nothing, CLAIM, trials=100, alpha=0.01) is None
