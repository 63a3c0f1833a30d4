"""Mistakes of published audit code that touch the estimators: each fails here, ours does not."""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.hockey_stick import MechanismOutputs, hockey_stick
from fedassay.audit.estimators.one_run import epsilon_from_guesses, one_run, p_value
from fedassay.audit.estimators.one_run_fdp import one_run_fdp
from fedassay.audit.estimators.pairwise_event import EventCounts, pairwise_event
from fedassay.audit.estimators.sequential import sequential
from fedassay.audit.estimators.z_test import z_test
from fedassay.audit.evidence import Design, Guesses
from fedassay.audit.threshold import BonferroniThresholds, FixedThreshold, SplitThreshold
from scipy.stats import binom

REPEATS = 1000


# Upper bounds at alpha .05 by the number of errors in a thousand.
HIGH = upper_bound(np.arange(1001), 1000, 0.025)


def bounds_at_every_cut(member, nonmember):
    """Of a thousand scores a side, cut at each of them."""
    cuts = np.concatenate([member, nonmember])
    false_positives = 1000 - np.searchsorted(np.sort(nonmember), cuts, side="right")
    false_negatives = np.searchsorted(np.sort(member), cuts, side="right")
    return HIGH[false_positives], HIGH[false_negatives]


@pytest.mark.simulations
def test_the_best_threshold_on_the_counted_data_errs_and_no_policy_of_ours_does(scores_of, most_false_alarms):
    # Mistake 3: two Laplace laws 2 apart are (2, 0)-DP at every cut beyond both; n 1000, alpha .05.
    rng, cuts = np.random.default_rng(1), (0.0, 1.0, 2.0)
    policies = {"fixed": FixedThreshold(2.0), "split": SplitThreshold(0.5), "bonferroni": BonferroniThresholds(cuts)}
    errors = dict.fromkeys(policies, 0)
    mistaken = 0
    for _ in range(REPEATS):
        scores = scores_of(rng.laplace(2, 1, 1000), rng.laplace(0, 1, 1000))
        fpr, fnr = bounds_at_every_cut(scores.member, scores.nonmember)
        mistaken += privacy_loss(fpr, fnr, 0.0).max() > 2
        for name, policy in policies.items():
            errors[name] += clopper_pearson(scores, delta=0.0, alpha=0.05, threshold=policy).epsilon_low > 2
    assert mistaken > most_false_alarms(REPEATS, 0.05)
    assert max(errors.values()) <= most_false_alarms(REPEATS, 0.05)


@pytest.mark.simulations
def test_a_bound_without_delta_accuses_a_mechanism_that_keeps_its_claim(scores_of, most_false_alarms):
    # Mistake 7: (1, .1)-DP to the letter.
    rng, wrong = np.random.default_rng(3), 0.9 / (1 + math.e)
    forgotten = ours = 0
    for _ in range(REPEATS):
        scores = scores_of((rng.random(400) >= wrong).astype(float), (rng.random(400) < wrong).astype(float))
        forgotten += clopper_pearson(scores, delta=0.0, alpha=0.05, threshold=FixedThreshold(0.5)).epsilon_low > 1
        ours += clopper_pearson(scores, delta=0.1, alpha=0.05, threshold=FixedThreshold(0.5)).epsilon_low > 1
    assert forgotten > 200
    assert ours <= most_false_alarms(REPEATS, 0.05)


def test_no_right_guess_proves_nothing_where_a_grid_has_an_edge(setting_of):
    # Mistake 2: 0 right of 10 "proved" .397, the first of the noise levels on a grid.
    for counts in ((0, 10, 1000), (0, 10, 10), (5, 10, 1000), (0, 0, 1)):
        guesses = Guesses(*counts, setting_of(design=Design.ONE_RUN))
        for estimator in (one_run, one_run_fdp):
            assert estimator(guesses, delta=1e-5, alpha=0.05).epsilon_low == 0


def test_canaries_that_share_a_coin_are_no_independent_channels(most_false_alarms):
    # Mistake 5: with chance .2 one coin reveals all 500 canaries, else randomised response at epsilon 1: (1, .2)-DP to
    # the letter. Each canary alone is guessed right with chance .2 + .8 q, but their counts are no binomial.
    rng, q = np.random.default_rng(8), 1 / (1 + math.exp(-1))
    right = np.where(rng.random(REPEATS) < 0.2, 500, rng.binomial(500, q, REPEATS))
    independent = binom.sf(right - 1, 500, 0.2 + 0.8 * q) < 0.05
    ours = sum(p_value(int(v), 500, 500, epsilon=1.0, delta=0.2) < 0.05 for v in np.unique(right))
    assert independent.sum() > 2 * most_false_alarms(REPEATS, 0.05)
    assert ours == 0


def test_one_noise_draw_makes_many_canaries_one_trial(scores_of, setting_of):
    # Mistake 10: a thousand canaries that share an offset are one draw; counted as trials they accuse a null.
    rng, mistaken = np.random.default_rng(11), 0
    for _ in range(200):
        offset = rng.normal(size=2)
        scores = scores_of(rng.normal(size=500) + offset[0], rng.normal(size=500) + offset[1])
        mistaken += clopper_pearson(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.0)).epsilon_low > 0
    assert mistaken > 80
    shared = scores_of([1.0, 2.0], [0.0, 1.0], design=Design.CLUSTERED)
    levels = {"delta": 1e-5, "alpha": 0.05}
    for refused in (
        lambda: sequential(MechanismOutputs(np.ones((4, 1)), np.ones((4, 1)), shared.setting), **levels),
        lambda: z_test(shared, **levels),
        lambda: one_run(Guesses(1, 2, 3, shared.setting), **levels),
        lambda: one_run_fdp(Guesses(1, 2, 3, shared.setting), **levels),
        lambda: hockey_stick(MechanismOutputs(np.ones((4, 1)), np.ones((4, 1)), shared.setting), **levels),
        lambda: pairwise_event(EventCounts(hits_in=1, n1=2, hits_out=1, n0=2, setting=shared.setting), **levels),
    ):
        with pytest.raises(ValueError, match=r"needs (one run|independent)"):
            refused()


def test_one_run_without_delta_accuses_a_mechanism_that_reveals_some_canaries():
    # Mistake 7: revealed with chance .1, else a coin: (0, .1)-DP to the letter; 400 guesses.
    right = np.random.default_rng(10).binomial(400, 0.55, 200)
    forgotten = [epsilon_from_guesses(int(v), 400, 400, delta=0.0, alpha=0.05) > 0 for v in right]
    kept = [epsilon_from_guesses(int(v), 400, 400, delta=0.1, alpha=0.05) > 0 for v in right]
    assert np.mean(forgotten) > 0.5
    assert not any(kept)
