"""Independent runs of the audit: what is kept of them does not grow with their number."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.curve import mu_from_epsilon
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical import runs
from fedassay.suites.vertical.pairs import pair_of_labels
from fedassay.suites.vertical.runs import dependent
from toy_vertical import LOGISTIC, SPLIT, label_case, toy_vertical


def measured(**settings):
    task, plan = toy_vertical(SPLIT)
    case = label_case(LabelRandomisedResponse(epsilon=3.0).prepare(plan).protection, seed=1)
    return runs.measured_in_runs(case, [pair_of_labels(task, Streams(1))], replicas=2000, alpha=0.01, **settings)


@pytest.mark.simulations
def test_scores_learned_on_fewer_runs_still_find_a_false_claim(monkeypatch):
    whole = measured(pilot=1000)
    monkeypatch.setattr(runs, "MOST_KEPT", 1)
    few = measured(pilot=1000)
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


class Own(VerticalProtection):
    """Noise for each run."""

    def residuals(self, values, context, rng):
        return values + SCALE * normal(rng, tuple(values.shape))


def of_one_epoch(protection):
    federation = toy_vertical(LOGISTIC, n=4, epochs=1, batch=4, learning_rate=0.01)
    case = label_case(protection, delta=1e-5, federation=federation)
    return runs.measured_in_runs(case, [pair_of_labels(case.task, Streams(0))], replicas=1500, pilot=500, alpha=0.01)


SHARED = [(OneForAll(), "for all replicas"), (OneForHalves(), "for all replicas"), (OneForEver(), "generator")]


@pytest.mark.parametrize(("protection", "words"), SHARED)
def test_runs_that_share_noise_give_no_bound(protection, words):
    with pytest.raises(runs.DependentRuns, match=words):
        of_one_epoch(protection)


def test_runs_with_noise_of_their_own_keep_a_claim_that_holds():
    assert of_one_epoch(Own()).epsilon_low <= 1.0


def test_independent_runs_are_not_taken_for_dependent_whether_their_numbers_repeat_or_not():
    rng = np.random.default_rng(0)
    draws = [
        lambda block, n: rng.standard_normal((n, 2)),
        lambda block, n: (rng.random((n, 2)) < 0.01).astype(float),
        lambda block, n: np.ones((n, 2)) + 1e-14 * np.arange(n)[:, None],
        lambda block, n: rng.standard_cauchy((n, 2)),
    ]
    assert [dependent(draw) for draw in draws for _ in range(50)] == [""] * 200
