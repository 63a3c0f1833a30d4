"""Scores supplied by the user: judged like measured ones, and refused where they cannot be judged.

One run with canaries: estimators as in suites, coins that must have been fair, a direction that is asked for.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low
from fedassay.audit.claim import Claim
from fedassay.audit.estimators.guess_odds import runs_for_coins
from fedassay.audit.estimators.one_run import epsilon_from_guesses
from fedassay.audit.estimators.one_run import one_run as catalogued
from fedassay.audit.estimators.one_run_claim import planned_guesses
from fedassay.audit.evidence import Guesses
from fedassay.audit.finding import Verdict
from fedassay.audit.measurement import Measurement
from fedassay.audit.supplied.scores import audit_one_run, audit_scores
from fedassay.audit.threshold import scores_of

CLAIM = Claim.stated(1.0, 1e-5, unit="sample", adjacency="add_remove", observer="final_model")
INDEPENDENT = {"design": "independent", "higher_is_member": True}


def test_a_threshold_fixed_before_gives_the_closed_form():
    finding = audit_scores(np.ones(100), np.zeros(100), CLAIM, **INDEPENDENT, threshold=0.5)
    assert finding.measurement.epsilon_low == epsilon_low(0, 0, 100, 100, 1e-5, 0.05)
    assert finding.measurement.epsilon_low == pytest.approx(3.2813, abs=1e-4)
    assert finding.verdict is Verdict.REFUTED
    assert finding.line().startswith(
        "eps 1, delta 1e-5, one sample (add/remove), adversary: the public (final model): "
    )


def test_so_many_scores_leave_the_counted_number_of_each_and_a_tenth_less_leave_fewer():
    claim = Claim.stated(4, unit="sample", adjacency="add_remove")

    def counted(scores, seed):
        rng = np.random.default_rng(seed)
        sides = rng.normal(1, 1, scores), rng.normal(0, 1, scores)
        measured = audit_scores(*sides, claim, **INDEPENDENT).measurement
        assert measured.estimator == "guess_odds"
        return min(measured.n0, measured.n1)

    many = scores_of(runs_for_coins(206))
    enough = [counted(many, seed) >= 206 for seed in range(20)]
    fewer = [counted(int(0.85 * many), seed) >= 206 for seed in range(20)]
    # 98 % of audits; fewer than 17 of 20 have a probability below 1e-3.
    assert sum(enough) >= 17
    assert sum(fewer) <= 3


def test_without_one_a_fifth_of_each_side_chooses_and_sides_may_be_unequal():
    rng = np.random.default_rng(0)
    measured = audit_scores(rng.normal(3, 1, 2000), rng.normal(0, 1, 500), CLAIM, **INDEPENDENT, seed=4).measurement
    assert (measured.n1, measured.n0, measured.threshold_policy) == (1600, 400, "split(fraction=0.2, seed=4)")
    assert measured.epsilon_low > 1


def test_the_claims_curve_refutes_where_the_epsilon_cannot():
    # Half the noise behind epsilon 4, 500 counted trials per arm: the curve detects it, the bound stays far below 4.
    rng, claim = np.random.default_rng(1), Claim.stated(delta=1e-5, mu=0.925)
    finding = audit_scores(rng.normal(1.85, 1, 1000), rng.normal(0, 1, 1000), claim, **INDEPENDENT)
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "curve")
    assert finding.measurement.epsilon_low < 4


@pytest.mark.simulations
def test_scores_exactly_at_a_stated_curve_are_refuted_no_oftener_than_alpha(most_false_alarms):
    # 500 repeats at alpha .05: more than 41 have chance .001.
    rng, claim = np.random.default_rng(2), Claim.stated(delta=1e-5, mu=1.0)
    refuted = sum(
        audit_scores(rng.normal(1, 1, 200), rng.normal(0, 1, 200), claim, **INDEPENDENT, seed=seed).verdict
        is Verdict.REFUTED
        for seed in range(500)
    )
    assert refuted <= most_false_alarms(500, 0.05) == 41


@pytest.mark.parametrize(
    ("member", "nonmember", "options", "words"),
    [
        ([], [1.0], {}, r"member must not be empty, got shape \(0,\)"),
        ([1.0], [], {}, r"nonmember must not be empty, got shape \(0,\)"),
        ([1.0, math.nan], [1.0], {}, "member must be finite, got 1 of 2 NaN or infinite"),
        ([1.0], [-math.inf], {}, "nonmember must be finite, got 1 of 1 NaN or infinite"),
        ([[1.0, 2.0]], [1.0], {}, r"member must have 1 dimension\(s\), got shape \(1, 2\)"),
        ([1.0], [0.0], {"threshold": math.nan}, "a threshold must be finite, got nan"),
        ([1.0], [0.0], {"threshold": 0.5, "alpha": 0.0}, r"alpha .* must lie in \(0, 0.5\], got 0.0"),
        ([1.0], [0.0], {"alpha": 0.6}, r"alpha .* must lie in \(0, 0.5\], got 0.6"),
        ([1.0], [0.0], {"threshold": 0.5, "alpha": "a"}, "alpha must be a number, got 'a'"),
        ([1.0], [0.0], {"threshold": "a"}, "threshold must be a number, got 'a'"),
        ([1.0], [0.0], {"sigma": -1.0, "estimator": "release_tests"}, "sigma must be > 0 and finite, got -1.0"),
        ([1.0], [0.0], {"rate": 2.0}, r"rate must be in \(0, 1\], got 2.0"),
        ([1.0], [0.0], {"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ([1.0], [0.0], {"deviation": "a"}, "deviation must be a number, got 'a'"),
        ([1.0], [0.0], {"sigma": 1.0}, "clopper_pearson does not use the option sigma: leave it out"),
        ([1.0], [0.0], {"design": "one_run", "deviation": 1.0}, "one_run does not use the option deviation"),
        (["a", "b"], [1.0], {}, "member must be real numbers, got <U1"),
        ([[1.0], [1.0, 2.0]], [1.0], {}, r"member must be an array of numbers, got \[\[1.0\], \[1.0, 2.0\]\]"),
        (None, [1.0], {}, r"member must have 1 dimension\(s\), got shape \(\)"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(member, nonmember, options, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(member, nonmember, CLAIM, **INDEPENDENT | options)


def canaries(effect, m=1000, seed=0):
    rng = np.random.default_rng(seed)
    coins = rng.random(m) < 0.5
    return rng.normal(0, 1, m) + effect * coins, coins


def test_revealed_canaries_refute_with_the_bound_of_the_theorem():
    scores, coins = canaries(50.0)
    found = audit_one_run(scores, coins, CLAIM, higher_is_member=True)
    made = planned_guesses(1000, epsilon=1.0, delta=1e-5, alpha=0.05)
    assert found.verdict is Verdict.REFUTED
    assert found.measurement.right == found.measurement.made == made
    assert found.measurement.epsilon_low == epsilon_from_guesses(made, made, 1000, delta=1e-5, alpha=0.05)


def test_scores_are_joined_to_the_coins_of_their_canaries_by_identifiers():
    """In another order of the scores alone the same arrays show nothing."""
    rng = np.random.default_rng(0)
    coins = rng.random(400) < 0.5
    scores = coins * 3.0 + rng.normal(size=400)
    order = rng.permutation(400)
    by_name = {f"canary {at}": scores[at] for at in order}
    found = audit_one_run(by_name, {f"canary {at}": bool(coins[at]) for at in range(400)}, CLAIM, higher_is_member=True)
    in_order = audit_one_run(scores, coins, CLAIM, higher_is_member=True)
    assert found.measurement == in_order.measurement
    assert found.verdict is Verdict.REFUTED
    with pytest.raises(ValueError, match="every canary must have a score, got none for 1, such as 'b'"):
        audit_one_run({"a": 1.0}, {"a": True, "b": False}, CLAIM, higher_is_member=True)
    with pytest.raises(ValueError, match="every canary must have a coin, got none for 1, such as 'a'"):
        audit_one_run({"a": 1.0, "b": 2.0}, {"b": False}, CLAIM, higher_is_member=True)
    with pytest.raises(ValueError, match="must both be mappings"):
        audit_one_run({"a": 1.0}, [True], CLAIM, higher_is_member=True)


def test_losses_are_refused_and_turned():
    scores, coins = canaries(-5.0)
    with pytest.raises(ValueError, match="state --lower-is-member"):
        audit_one_run(scores, coins, CLAIM, higher_is_member=True)
    assert audit_one_run(scores, coins, CLAIM, higher_is_member=False).verdict is Verdict.REFUTED
    with pytest.raises(ValueError, match="state whether high or low scores mean member"):
        audit_one_run(scores, coins, CLAIM)


def test_few_canaries_are_underpowered():
    scores, coins = canaries(50.0, m=12)
    assert audit_one_run(scores, coins, Claim.stated(4.0, 1e-5), higher_is_member=True).verdict is Verdict.UNDERPOWERED


def test_a_gaussian_claim_is_judged_by_both_estimators_at_half_of_alpha_each():
    scores, coins = canaries(2.0)
    claim = Claim.stated(delta=1e-5, mu=1.0)
    found = audit_one_run(scores, coins, claim, higher_is_member=True).measurement
    assert (found.comparisons, found.alpha) == (2, 0.05)


def test_one_run_of_scores_is_the_same_audit():
    scores, coins = canaries(2.0)
    whole = np.concatenate([scores[coins], scores[~coins]])
    first = audit_scores(scores[coins], scores[~coins], CLAIM, design="one_run", higher_is_member=True)
    assert first == audit_one_run(whole, np.arange(1000) < coins.sum(), CLAIM, higher_is_member=True)


def test_one_shot_gives_an_estimate_that_never_refutes():
    rng = np.random.default_rng(0)
    cosines = rng.normal(0.9, 0.01, 50)
    found = audit_one_run(cosines, np.ones(50, bool), CLAIM, estimator="one_shot", dimension=10_000)
    assert (found.verdict, found.measurement.kind.value) == (Verdict.UNDERPOWERED, "estimate")
    assert found.measurement.estimate > 100


def test_an_estimator_of_ones_own_is_called_whatever_its_name_is():
    def one_run(guesses: Guesses, *, delta: float, alpha: float) -> Measurement:
        assert guesses.right > guesses.made / 2
        return replace(catalogued(guesses, delta=delta, alpha=alpha), epsilon_low=0.25)

    found = audit_one_run(*canaries(2.0), CLAIM, higher_is_member=True, estimator=one_run)
    assert found.measurement.epsilon_low == 0.25


COINS = np.random.default_rng(5).random(1000) < 0.5


@pytest.mark.parametrize(
    ("coins", "options", "words"),
    [
        (np.arange(1000) < 600, {}, "600 of 1000 canaries were included, which independent fair coins give"),
        (np.ones(1000, bool), {}, "1000 of 1000 canaries were included"),
        (np.arange(900) < 450, {}, r"included must be booleans of shape \(1000,\)"),
        (np.arange(1000) % 3, {}, "included must be booleans"),
        (
            np.arange(1000) < 500,
            {},
            "the first or the second half of the canaries was included, which is a fixed split",
        ),
        (np.arange(1000) % 2, {}, "every other canary was included, which is a fixed split"),
        (COINS, {"estimator": "clopper_pearson"}, "estimators that cover it: one_run, one_run_fdp, one_"),
        (COINS, {"estimator": "one_rum"}, "unknown estimator 'one_rum'; known: one_run, "),
        (COINS, {"estimator": ["one_run", "one_shot"], "dimension": 9}, "one_shot does not give a bound"),
        (COINS, {"estimator": "one_shot"}, r"one_shot needs dimension \(--dimension\)"),
        (COINS, {"dimension": 10}, "one_run does not use the option dimension: leave it out"),
        (COINS, {"estimator": "one_shot", "dimension": 9, "guesses": 9}, "one_shot makes no guesses"),
    ],
)
def test_what_does_not_fit_is_refused(coins, options, words):
    scores = np.random.default_rng(0).uniform(-1, 1, 1000)
    with pytest.raises(ValueError, match=words):
        audit_one_run(scores, coins, CLAIM, higher_is_member=True, **options)
