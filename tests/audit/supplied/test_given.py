"""What a caller in Python hands over as scores, directions and numbers is read as it is meant, or refused.

Scores given twice and rows that are repeated are refused; ties that scores on a grid have are not.

The direction of scores: losses are noticed, correct scores hardly ever taken for losses, and no bound suffers.

Scores that share runs: one of each run is counted, and runs that differ in several records are refused.
"""

from itertools import product

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.evidence import Design
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.given import (
    FALSE_ALARM,
    check_copies,
    direction_test,
    one_score_per_cluster,
    remark,
    scores_or_rows,
)
from fedassay.audit.supplied.scores import audit_one_run, audit_scores
from scipy.stats import binom

CLAIM = Claim.stated(1.0, 1e-5)
RNG = np.random.default_rng(0)
MEMBER, NONMEMBER = RNG.normal(size=200), RNG.normal(size=200)
RUNS = np.arange(200)


TRAINED = torch.tensor([1.0, 2.0], requires_grad=True)


@pytest.mark.parametrize(
    "given", [[1.0, 2.0], (1, 2), np.array([[1.0], [2.0]]), TRAINED, [*TRAINED], TRAINED.to(torch.bfloat16)]
)
def test_lists_columns_and_tensors_are_scores(given):
    assert scores_or_rows("member", given).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([1 + 1j, 2]), "member must be real numbers, got complex128"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "member must be real numbers, got datetime64"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), "member must hold no masked values"),
        (["True", "False"], "member must be real numbers, got <U5"),
        (np.array(["1_000", "2"]), "member must be real numbers, got <U5"),
        (np.array([True, False]), "member must be real numbers, got bool"),
        (torch.tensor([2**53 + 1]), "float64 holds exactly"),
        ((x for x in MEMBER), "member must be an array of numbers, got <generator"),
    ],
)
def test_what_is_no_real_number_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(given, NONMEMBER, CLAIM, design="independent")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"higher_is_member": "False"}, "higher_is_member must be True, False or None, got 'False'"),
        ({"higher_is_member": 0}, "higher_is_member must be True, False or None, got 0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"estimator": 3}, "estimator must be a name, a table, a function or a list of them, got 3"),
        (
            {"design": "clustered", "clusters": RUNS},
            r"clusters must be two arrays, of members and of non-members, got array\(\[",
        ),
        ({"design": "clustered", "clusters": ([None] * 200, RUNS)}, "a missing name"),
        ({"design": "clustered", "clusters": (RUNS, [np.nan] * 200)}, "a missing name"),
    ],
)
def test_options_of_other_types_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(MEMBER, NONMEMBER, CLAIM, **{"design": "independent"} | options)


def test_a_direction_may_be_a_boolean_of_numpy():
    # Losses of members are lower: read as high scores they would be refused.
    finding = audit_scores(MEMBER - 9, NONMEMBER, CLAIM, design="independent", higher_is_member=np.False_)
    assert finding.verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("guesses", "words"), [(0, "from 1 to 400, got 0"), (401, "from 1 to 400, got 401"), (1.5, "a whole number")]
)
def test_a_number_of_guesses_that_cannot_be_made_is_refused(guesses, words):
    scores, coins = np.concatenate([NONMEMBER[:100], MEMBER, NONMEMBER[100:]]), abs(np.arange(400) - 199.5) < 100
    with pytest.raises(ValueError, match=f"guesses must be {words}"):
        audit_one_run(scores, coins, CLAIM, higher_is_member=True, guesses=guesses)
    column = audit_one_run(scores[:, None], coins[:, None], CLAIM, higher_is_member=True)
    assert column == audit_one_run(scores, coins, CLAIM, higher_is_member=True)


BOTH = pytest.mark.parametrize("design", [Design.INDEPENDENT, Design.ONE_RUN])


def normal(n, seed=0):
    return np.random.default_rng(seed).normal(size=n)


@BOTH
@pytest.mark.parametrize("order", ["same", "sorted", "permuted", "rows"])
def test_one_set_of_scores_for_both_sides_is_refused(order, design):
    member = normal(200)
    other = {"same": member, "sorted": np.sort(member), "permuted": np.random.default_rng(1).permutation(member)}
    sides = (np.stack([member, member**2], 1),) * 2 if order == "rows" else (member, other[order])
    with pytest.raises(ValueError, match="members and non-members have the same 200 scores"):
        check_copies(*sides, design=design)


@pytest.mark.parametrize(("times", "words"), [(2, "occurs 2 times"), (5, "occurs 5 times"), (6, "occurs 6 times")])
def test_rows_that_are_repeated_in_blocks_are_refused(times, words):
    with pytest.raises(ValueError, match=words):
        check_copies(np.tile(normal(50), times), normal(300, 1), design=Design.INDEPENDENT)
    with pytest.raises(ValueError, match=f"non-members {words}.*give one row per canary"):
        check_copies(normal(300, 1), np.repeat(normal(50), times), design=Design.ONE_RUN)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(size=n),
        lambda rng, n: rng.normal(size=n).round(1),
        lambda rng, n: rng.normal(size=n).astype(np.float16),
        lambda rng, n: rng.integers(0, 2, n),
        lambda rng, n: rng.integers(0, 3, n),
        lambda rng, n: np.exp(rng.integers(0, 40, n)),
        lambda rng, n: np.maximum(rng.normal(size=n), 0),
        lambda rng, n: np.zeros(n),
    ],
)
def test_ties_of_exchangeable_scores_are_allowed(draw):
    rng = np.random.default_rng(0)
    for n, one, other in product((1, 2, 30, 400), (1, 2), (1, 2)):
        for _ in range(5):
            member, nonmember = draw(rng, n * one), draw(rng, n * other)
            check_copies(np.asarray(member, float), np.asarray(nonmember, float), design=Design.INDEPENDENT)


def test_outputs_may_be_texts_and_large_rows():
    words = np.array([f"w{at}" for at in range(60)])
    with pytest.raises(ValueError, match="the same 60 scores"):
        check_copies(words, words[::-1], design=Design.INDEPENDENT)
    check_copies(words, np.char.add(words, "x"), design=Design.INDEPENDENT)
    models = normal(60 * 1000).reshape(60, 10, 100)
    with pytest.raises(ValueError, match="the same 30 scores"):
        check_copies(models[:30], models[:30][::-1], design=Design.INDEPENDENT)
    check_copies(models[:30], models[30:], design=Design.INDEPENDENT)


def test_two_values_that_separate_are_remarked_and_others_are_not():
    assert "computed without knowledge of membership" in remark(np.ones(9), np.zeros(9))
    assert not remark(np.ones(9), np.ones(9)) + remark(np.ones(9), np.r_[0.0, np.ones(8)])


OF_SAMPLES = Claim.stated(1.0, 1e-5, unit="sample", adjacency="add_remove", observer="final_model")


def test_auc_and_p_value_of_a_separation_by_hand():
    found = direction_test(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    assert found.auc == 0.0
    # One of C(4, 2) = 6 orders has both members below the middle; three different cuts were tried.
    assert found.p_lower == pytest.approx(3 / 6)
    assert direction_test(np.array([2.0, 1.0]), np.array([1.0, 0.0])).auc == pytest.approx(3.5 / 4)


@pytest.mark.parametrize("higher", [None, True])
def test_losses_are_refused_and_the_right_direction_is_named(higher):
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(0, 1, 400), rng.normal(2, 1, 300)
    with pytest.raises(ValueError, match=r"members score lower .*AUC 0\.\d+.*state --lower-is-member"):
        audit_scores(member, nonmember, OF_SAMPLES, design="independent", higher_is_member=higher)
    with pytest.raises(ValueError, match=r"members score higher .*state --higher-is-member"):
        audit_scores(-member, -nonmember, OF_SAMPLES, design="independent", higher_is_member=False)
    turned = audit_scores(member, nonmember, OF_SAMPLES, design="independent", higher_is_member=False)
    plain = audit_scores(-member, -nonmember, OF_SAMPLES, design="independent")
    assert turned == plain
    assert turned.verdict is Verdict.REFUTED


@pytest.mark.parametrize("options", [{"threshold": 0.0}, {"estimator": "z_test"}])
def test_a_direction_is_asked_for_where_no_scores_are_left_to_test_it(options):
    claim = Claim.stated(delta=1e-5, mu=1.0)
    with pytest.raises(ValueError, match="state whether high or low scores mean member"):
        audit_scores([1.0, 2.0], [0.0, 1.5], claim, design="independent", **options)


def test_scores_that_only_spread_wider_are_no_losses():
    # Members N(0.3, 3): more of them at both ends, and an AUC above one half.
    rng = np.random.default_rng(1)
    found = direction_test(rng.normal(0.3, 3, 5000), rng.normal(0, 1, 5000))
    assert found.p_lower < FALSE_ALARM
    assert found.p_higher < FALSE_ALARM
    assert not found.reversed


@pytest.mark.simulations
def test_the_false_alarm_rate_is_at_most_the_stated_one_also_with_ties():
    rng = np.random.default_rng(2)
    repeats = 3_000
    alarms = sum(
        direction_test(np.round(rng.normal(size=60), 1), np.round(rng.normal(size=40), 1)).reversed
        for _ in range(repeats)
    )
    assert alarms <= binom.ppf(0.999, repeats, FALSE_ALARM)


@pytest.mark.simulations
def test_turning_the_direction_after_the_error_refutes_a_true_claim_no_oftener_than_alpha(most_false_alarms):
    # Members lie lower by exactly the claim: a caller who does not know it takes what the error names.
    rng, claim, repeats = np.random.default_rng(3), Claim.stated(delta=1e-5, mu=1.0), 300
    refuted = 0
    for seed in range(repeats):
        member, nonmember = rng.normal(-1, 1, 120), rng.normal(0, 1, 120)
        try:
            found = audit_scores(member, nonmember, claim, design="independent", seed=seed)
        except ValueError:
            found = audit_scores(member, nonmember, claim, design="independent", seed=seed, higher_is_member=False)
        refuted += found.verdict is Verdict.REFUTED
    assert refuted <= most_false_alarms(repeats, 0.05)


OF_RUNS = Claim.stated(delta=1e-5, mu=1.0, unit="sample", adjacency="add_remove", observer="final_model")


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
    found = audit_scores(
        scores[coins], scores[~coins], OF_RUNS, design="clustered", clusters=(runs[coins], runs[~coins])
    )
    assert found.verdict is Verdict.REFUTED
    assert found.measurement.n0 + found.measurement.n1 == pytest.approx(240, abs=1)
    assert "independent coin" in found.measurement.witness


@pytest.mark.parametrize("clusters", [None, 3, "ab", ([1], [2, 3])])
def test_clusters_that_do_not_fit_are_refused(clusters):
    with pytest.raises(ValueError, match="clusters must"):
        audit_scores([1.0, 2.0], [0.0, 1.0], OF_RUNS, design="clustered", clusters=clusters)


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
        found = audit_scores(*sides, OF_RUNS, design="clustered", clusters=(runs[coins], runs[~coins]), **options)
        refuted += found.verdict is Verdict.REFUTED
        naive += audit_scores(*sides, OF_RUNS, design="independent", **options).verdict is Verdict.REFUTED
    assert refuted <= most_false_alarms(repeats, 0.05) < naive


@pytest.mark.simulations
def test_coins_of_several_runs_together_refute_a_true_claim_no_oftener_than_alpha(most_false_alarms):
    # Randomised response at epsilon 1 is where the theorem is tight; the same claim at a half is false.
    rng, repeats, refuted, found = np.random.default_rng(2), 300, 0, 0
    runs = np.repeat(np.arange(20), 25)
    for seed in range(repeats):
        coins = rng.random(500) < 0.5
        scores = np.where(rng.random(500) < 1 / (1 + np.e), ~coins, coins) + 0.1 * rng.normal(size=20)[runs]
        options = {"runs": runs, "seed": seed, "higher_is_member": True, "guesses": 500}
        verdicts = [audit_one_run(scores, coins, Claim.stated(eps), **options).verdict for eps in (1.0, 0.5)]
        refuted += verdicts[0] is Verdict.REFUTED
        found += verdicts[1] is Verdict.REFUTED
    assert refuted <= most_false_alarms(repeats, 0.05)
    assert found > 0.9 * repeats
