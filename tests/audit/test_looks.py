"""Looks at an audit's runs: all of them together err no oftener than alpha, and looking without a plan does."""

import math

import numpy as np
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.power import planned_looks
from hypothesis import given
from hypothesis import strategies as st

ALPHA, RUNS = 0.3, 1000
REPEATS = 2000
# The claim epsilon = 1, delta = 0 is exactly true of an event of these rates. A large alpha, because two bounds at
# alpha / 2 each err far less often than alpha.
EPSILON, FPR = 1.0, 0.1


def errors(fpr, fnr, *, seed=0, repeats=REPEATS):
    """Error counts (repeats, RUNS) after every run, without and with the canary."""
    rng = np.random.default_rng(seed)
    return [np.cumsum(rng.random((repeats, RUNS)) < rate, axis=1) for rate in (fpr, fnr)]


def refuted(fp, fn, runs, alpha):
    """Whether the Clopper-Pearson bound after ``runs`` runs per arm exceeds the claim, for each repeat."""
    high = upper_bound(np.arange(runs + 1), runs, alpha / 2)
    return privacy_loss(high[fp[:, runs - 1]], high[fn[:, runs - 1]], 0.0) > EPSILON


def share_refuted(fp, fn, looks):
    return float(np.any([refuted(fp, fn, runs, alpha) for runs, alpha in looks], axis=0).mean())


def test_a_claim_that_is_exactly_true_is_refuted_no_oftener_than_alpha_over_all_looks():
    fp, fn = errors(FPR, 1 - math.exp(EPSILON) * FPR)
    looks = [(look.replicas, look.alpha) for look in planned_looks(RUNS, ALPHA)]
    assert share_refuted(fp, fn, looks) <= ALPHA


def test_the_looks_cost_less_power_than_a_sixth_of_the_runs():
    alpha = 0.01
    fp, fn = errors(0.1, 0.58)
    looks = [(look.replicas, look.alpha) for look in planned_looks(RUNS, alpha)]
    assert share_refuted(fp, fn, [(5 * RUNS // 6, alpha)]) < share_refuted(fp, fn, looks)
    assert share_refuted(fp, fn, looks) < share_refuted(fp, fn, [(RUNS, alpha)]) < 0.99


@given(st.integers(2, 10**6), st.floats(1e-9, 0.5))
def test_the_levels_sum_to_alpha_at_most_and_the_last_look_is_at_all_runs(replicas, alpha):
    looks = planned_looks(replicas, alpha)
    counts = [look.replicas for look in looks]
    assert counts == sorted(set(counts))
    assert counts[0] >= 2
    assert counts[-1] == replicas
    assert math.fsum(look.alpha for look in looks) <= alpha * (1 + 1e-12)
    assert looks[-1].alpha >= alpha / 2
