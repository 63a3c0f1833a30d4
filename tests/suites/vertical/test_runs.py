"""Independent runs of an audit: what is kept of them, that none shares noise, and scores beyond the linear one."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical import runs
from fedassay.suites.vertical.pairs import pair_of_labels
from fedassay.suites.vertical.runs import dependent
from fedassay.suites.vertical.scores import clearest_event, places_of
from toy_vertical import LOGISTIC, SPLIT, OnResiduals, label_case, toy_vertical


def of_response(**settings):
    task, plan = toy_vertical(SPLIT)
    case = label_case(LabelRandomisedResponse(epsilon=3.0).prepare(plan).protection, seed=1)
    return runs.measured_in_runs(case, [pair_of_labels(task, Streams(1))], replicas=2000, alpha=0.01, **settings)


@pytest.mark.simulations
def test_scores_learned_on_fewer_runs_still_find_a_false_claim(monkeypatch):
    whole = of_response(pilot=1000)
    monkeypatch.setattr(runs, "MOST_KEPT", 1)
    few = of_response(pilot=1000)
    assert few.epsilon_low > 1
    assert whole.epsilon_low > 1


def test_blocks_are_kept_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(runs, "MOST_KEPT", 100)
    made = []

    def blocks():
        for number in range(50):
            made.append(number)
            yield [np.full((4, 2), number), np.full((4, 10), number)]

    own, everything = runs._kept(blocks())
    assert (own.shape, everything.shape) == ((8, 2), (8, 10))
    assert len(made) == 2


SCALE = math.sqrt(2) / mu_from_epsilon(1.0, 1e-5)
"""Of noise for which a claim of epsilon 1 about one label holds in one epoch."""


class OneForAll(VerticalProtection):
    """The same noise in all runs of a block."""

    def residuals(self, values, context, rng):
        return values + SCALE * normal(rng, tuple(values.shape[1:]))


class OneForHalves(VerticalProtection):
    """The same noise in two halves of a block."""

    def residuals(self, values, context, rng):
        half = normal(rng, (-(-len(values) // 2), *values.shape[1:]))
        return values + SCALE * torch.cat([half, half])[: len(values)]


class OneForEver(VerticalProtection):
    """Noise of each run by the number of the step alone."""

    def residuals(self, values, context, rng):
        return values + SCALE * normal(Streams(0).generator("own", round=context.step), tuple(values.shape))


def of_one_epoch(protection):
    federation = toy_vertical(LOGISTIC, n=4, epochs=1, batch=4, learning_rate=0.01)
    case = label_case(protection, delta=1e-5, federation=federation)
    return runs.measured_in_runs(case, [pair_of_labels(case.task, Streams(0))], replicas=1500, pilot=500, alpha=0.01)


SHARED = [(OneForAll(), "for each replica"), (OneForHalves(), "for each replica"), (OneForEver(), "generator")]


@pytest.mark.parametrize(("protection", "words"), SHARED)
def test_runs_that_share_noise_give_no_bound(protection, words):
    with pytest.raises(runs.DependentRuns, match=words):
        of_one_epoch(protection)


def test_runs_with_noise_of_their_own_keep_a_claim_that_holds():
    assert of_one_epoch(OnResiduals(lambda values, noise: values + noise, SCALE)).epsilon_low <= 1.0


def test_independent_runs_are_not_taken_for_dependent_whether_their_numbers_repeat_or_not():
    rng = np.random.default_rng(0)
    draws = [
        lambda block, n: rng.standard_normal((n, 2)),
        lambda block, n: (rng.random((n, 2)) < 0.01).astype(float),
        lambda block, n: np.ones((n, 2)) + 1e-14 * np.arange(n)[:, None],
        lambda block, n: rng.standard_cauchy((n, 2)),
    ]
    assert [dependent(draw) for draw in draws for _ in range(50)] == [""] * 200


TASK, PLAN = toy_vertical(LOGISTIC, learning_rate=0.01)
CLAIM = Claim.stated(2.0, 1e-5, unit="label", observer=PASSIVE_PARTY, rounds=PLAN.epochs)
NOISE = math.sqrt(2 * PLAN.epochs) / mu_from_epsilon(2.0, 1e-5)


def measured(function):
    case = label_case(OnResiduals(function, NOISE), epsilon=2.0, delta=1e-5, federation=(TASK, PLAN))
    return runs.measured_in_runs(case, [pair_of_labels(TASK, Streams(0))], replicas=1500, pilot=1000, alpha=0.01)


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
    rows = places_of(np.array([[1.5, -3.0, 0.0]]))
    np.testing.assert_array_equal(rows, [[0.5, 1, 0, 0, 1, 0, 0.5, 0, 0]])
    assert not places_of(np.zeros((1, 2)))[0, :2].any()


def test_runs_that_all_diverged_show_no_event():
    nothing = np.full((50, 3), np.nan)
    assert clearest_event(nothing, nothing, CLAIM, trials=100, alpha=0.01) is None
