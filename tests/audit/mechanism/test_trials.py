"""Trials of two arms: fresh runs are counted look by look, and all looks together err no oftener than alpha."""

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low
from fedassay.audit.mechanism.candidates import Projection
from fedassay.audit.mechanism.search import Event
from fedassay.audit.mechanism.trial_stream import dependence
from fedassay.audit.mechanism.trials import Trials, at_looks, pilot_events
from fedassay.audit.threshold import CountingPlan, Cut

ABOVE_HALF = Event(score=Projection(np.ones(1), "it"), cut=Cut(threshold=0.5, margin=0.0, bound=0.0))


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
    with pytest.raises(ValueError, match="at least one look"):
        at_looks((), 0.05, lambda look, share: look, lambda found: False)


def test_all_looks_together_err_no_oftener_than_alpha(most_false_alarms):
    rng, repeats = np.random.default_rng(1), 1000
    looks = tuple((n, n) for n in (50, 100, 200))

    def bound(counted):
        sides = counted.out.second, counted.n1 - counted.within.second
        return epsilon_low(*sides, counted.n0, counted.n1, 0.0, counted.alpha)

    stopped = [
        trials(rng, (0.2, 0.2), looks).count(ABOVE_HALF, bound, lambda found: found > 0) > 0 for _ in range(repeats)
    ]
    assert 0 < sum(stopped) <= most_false_alarms(repeats, 0.05)


def test_a_pilot_learns_on_its_first_outputs_and_fixes_events_on_the_others():
    rng = np.random.default_rng(2)
    out, within = rng.normal(size=(400, 1)), rng.normal(2.0, size=(400, 1))
    plan = CountingPlan(trials=1000, delta=0.0, alpha=0.05, curve=None)
    best = max(pilot_events(out, within, plan), key=lambda event: event.cut.promise)
    # At its threshold, the rates of two normal laws two deviations apart allow a bound above 1.5 from 1,000 runs.
    assert best.cut.bound > 1.5
    # Outputs that teach scores do not move thresholds.
    spoilt = np.concatenate([out[:200], within[200:]])
    assert max(event.cut.bound for event in pilot_events(spoilt, within, plan)) < best.cut.bound


@pytest.mark.parametrize(("shared", "found"), [(1.0, True), (0.0, False)])
def test_noise_shared_by_the_rows_of_a_call_is_found_in_both_series(shared, found):
    rng = np.random.default_rng(3)

    def series(number):
        return shared * rng.normal(size=(16, 1, 2)) + rng.normal(size=(16, 16, 2))

    assert (dependence(series, 1e-6) is not None) is found
