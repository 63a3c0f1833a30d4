"""Trials of two arms: fresh runs are counted look by look, and all looks together err no oftener than alpha.

Rows of one call that depend on each other are detected; independent rows never are, whatever their law.
"""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low
from fedassay.audit.claim import Claim
from fedassay.audit.mechanism.columns import coordinates
from fedassay.audit.mechanism.mechanism import audit_mechanism
from fedassay.audit.mechanism.scores import value
from fedassay.audit.mechanism.search import Event
from fedassay.audit.mechanism.trial_stream import MOST_TESTED, call_effect, dependence
from fedassay.audit.mechanism.trials import Trials, at_looks, scored_events
from fedassay.audit.threshold import CountingPlan, Cut
from scipy.stats import f_oneway, rankdata

ABOVE_HALF = Event(score=value(coordinates(), 1), cut=Cut(threshold=0.5, margin=0.0, bound=0.0))


def trials(rng, rates, looks, alpha=0.05):
    """Runs whose output is above one half with a probability per arm, in chunks of 7."""

    def draw(arm, runs):
        outputs = (rng.random((runs, 1)) < rates[arm]).astype(float)
        return (outputs[start : start + 7] for start in range(0, runs, 7))

    return Trials(draw=draw, looks=looks, alpha=alpha)


def test_runs_are_counted_once_and_each_look_has_its_share():
    seen = []
    some = trials(np.random.default_rng(0), (0.0, 1.0), ((10, 20), (30, 40)))
    some.count(ABOVE_HALF, lambda counted: seen.append(tuple(counted)))
    # Guesses of the second and of the first input: without a rule of two thresholds there are none of the first.
    assert seen == [((0, 0), (20, 0), 10, 20, 0.025), ((0, 0), (40, 0), 30, 40, 0.025)]


def test_a_test_stops_where_it_is_told_to_and_needs_a_look():
    made = []
    assert at_looks((1, 2, 3), 0.3, lambda look, share: made.append(look) or look, lambda found: found == 2) == 2
    assert made == [1, 2]
    with pytest.raises(ValueError, match="at least one number of trials"):
        at_looks((), 0.05, lambda look, share: look, lambda found: False)


def test_all_looks_together_err_no_oftener_than_alpha(most_false_alarms):
    # Two bounds at a share each err far less often than their alpha, hence a large one.
    rng, repeats, alpha = np.random.default_rng(1), 300, 0.5
    looks = tuple((n, n) for n in (50, 100, 200))

    def bound(counted):
        sides = counted.out.second, counted.n1 - counted.within.second
        return epsilon_low(*sides, counted.n0, counted.n1, 0.0, counted.alpha)

    stopped = [
        trials(rng, (0.2, 0.2), looks, alpha).count(ABOVE_HALF, bound, lambda found: found > 0) > 0
        for _ in range(repeats)
    ]
    assert 0 < sum(stopped) <= most_false_alarms(repeats, alpha)


def test_a_pilot_learns_on_its_first_outputs_and_fixes_events_on_the_others():
    rng = np.random.default_rng(2)
    out, within = rng.normal(size=(400, 1)), rng.normal(2.0, size=(400, 1))
    plan = CountingPlan(trials=1000, delta=0.0, alpha=0.05, curve=None)
    best = max((one.event for one in scored_events(out, within, plan)), key=lambda event: event.cut.promise)
    # At its threshold, the rates of two normal laws two deviations apart allow a bound above 1.5 from 1,000 runs.
    assert best.cut.bound > 1.5
    # Outputs that teach scores do not move thresholds.
    spoilt = np.concatenate([out[:200], within[200:]])
    assert max(one.event.cut.bound for one in scored_events(spoilt, within, plan)) < best.cut.bound


@pytest.mark.parametrize(("shared", "found"), [(1.0, True), (0.0, False)])
def test_noise_shared_by_the_rows_of_a_call_is_found_in_both_series(shared, found):
    rng = np.random.default_rng(3)

    def series(number):
        return shared * rng.normal(size=(16, 1, 2)) + rng.normal(size=(16, 16, 2))

    assert (dependence(series, 1e-6) is not None) is found


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
        with pytest.raises(ValueError, match=r"outputs of one call depend on each other \(p-value .* over 16 calls"):
            audit(SHARING[name], seed)


def test_the_p_value_is_that_of_an_analysis_of_variance_of_ranks():
    outputs = np.random.default_rng(0).integers(0, 9, size=(16, 16, 2, 2)) + np.arange(16).reshape(-1, 1, 1, 1) // 4
    expected = [f_oneway(*rankdata(column).reshape(16, 16)).pvalue for column in outputs.reshape(256, 4).T]
    np.testing.assert_allclose(call_effect(outputs), expected, rtol=1e-9)


def test_constants_tell_nothing_calls_that_differ_all_and_few_coordinates_are_tested():
    assert call_effect(np.full((16, 16), 3.0)).tolist() == [1.0]
    assert call_effect(np.arange(16).repeat(16).reshape(16, 16)).tolist() == [0.0]
    assert call_effect(np.zeros((16, 16, 99))).shape == (MOST_TESTED,)
