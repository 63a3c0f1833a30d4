"""Scores that share runs: one of each run is counted, and runs that differ in several records are refused."""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.given import one_score_per_cluster
from fedassay.audit.supplied.scores import audit_scores

CLAIM = Claim.stated(delta=1e-5, mu=1.0, unit="sample", adjacency="add_remove", observer="final_model")


def shared_runs(rng, runs, records, effect=0.0):
    """Scores of records of many runs, which share a large offset per run, and the coin of each record."""
    coins = rng.random((runs, records)) < 0.5
    scores = rng.normal(0, 1, (runs, records)) + 3 * rng.normal(0, 1, (runs, 1)) + effect * coins
    return scores.ravel(), coins.ravel(), np.repeat(np.arange(runs), records)


def test_one_score_of_each_cluster_is_kept():
    scores = np.array([10.0, 11.0, 20.0, 30.0, 31.0])
    coins = np.array([True, False, True, False, True])
    member, nonmember = one_score_per_cluster(scores, coins, ["a", "a", "b", "c", "c"], seed=0)
    kept = sorted(np.concatenate([member, nonmember]) // 10)
    assert kept == [1, 2, 3]
    assert set(member) <= {10.0, 20.0, 31.0}


def test_runs_that_differ_in_several_records_are_refused():
    with pytest.raises(ValueError, match="differ in more than one record"):
        one_score_per_cluster(np.arange(4.0), np.array([1, 1, 0, 0]) > 0, [1, 1, 2, 2], seed=0)


def test_one_cluster_is_no_set_of_independent_trials():
    with pytest.raises(ValueError, match="all scores are of one cluster"):
        one_score_per_cluster(np.arange(4.0), np.array([1, 1, 0, 0]) > 0, [1, 1, 1, 1], seed=0)


def test_the_audit_counts_runs_and_states_the_assumption():
    rng = np.random.default_rng(0)
    scores, coins, runs = shared_runs(rng, 300, 5, effect=40.0)
    found = audit_scores(scores[coins], scores[~coins], CLAIM, design="clustered", clusters=(runs[coins], runs[~coins]))
    assert found.verdict is Verdict.REFUTED
    assert found.measurement.n0 + found.measurement.n1 == pytest.approx(150, abs=1)
    assert "independent coin" in found.measurement.witness


@pytest.mark.parametrize("clusters", [None, 3, "ab", ([1], [2, 3])])
def test_clusters_that_do_not_fit_are_refused(clusters):
    with pytest.raises(ValueError, match="clusters must"):
        audit_scores([1.0, 2.0], [0.0, 1.0], CLAIM, design="clustered", clusters=clusters)


@pytest.mark.simulations
def test_scores_that_share_runs_refute_a_true_claim_no_oftener_than_alpha(most_false_alarms):
    # Each score is 1-GDP by itself, but most of its noise is that of its run: counted as independent, 900 scores of
    # 30 runs refute the true claim far too often.
    rng, repeats, refuted, naive = np.random.default_rng(1), 300, 0, 0
    for seed in range(repeats):
        coins = rng.random((30, 30)) < 0.5
        scores = coins + np.sqrt(0.9) * rng.normal(0, 1, (30, 1)) + np.sqrt(0.1) * rng.normal(0, 1, (30, 30))
        sides = scores[coins], scores[~coins]
        runs = np.broadcast_to(np.arange(30)[:, np.newaxis], coins.shape)
        options = {"seed": seed, "higher_is_member": True}
        found = audit_scores(*sides, CLAIM, design="clustered", clusters=(runs[coins], runs[~coins]), **options)
        refuted += found.verdict is Verdict.REFUTED
        naive += audit_scores(*sides, CLAIM, design="independent", **options).verdict is Verdict.REFUTED
    assert refuted <= most_false_alarms(repeats, 0.05) < naive
