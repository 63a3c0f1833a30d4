"""Scores supplied by the user: judged like measured ones, and refused where they cannot be judged."""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.scores import audit_scores

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


def test_without_one_half_of_each_side_chooses_and_sides_may_be_unequal():
    rng = np.random.default_rng(0)
    measured = audit_scores(rng.normal(3, 1, 2000), rng.normal(0, 1, 500), CLAIM, **INDEPENDENT, seed=4).measurement
    assert (measured.n1, measured.n0, measured.threshold_policy) == (1000, 250, "split(fraction=0.5, seed=4)")
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
        ([1.0], [0.0], {"threshold": 0.5, "alpha": 1.5}, r"alpha .* must lie in \(0, 0.5\], got 1.5"),
        ([1.0], [0.0], {"alpha": 0.6}, r"alpha .* must lie in \(0, 0.5\], got 0.6"),
        ([1.0], [0.0], {"threshold": 0.5, "alpha": "a"}, "alpha must be a number, got 'a'"),
        ([1.0], [0.0], {"threshold": "a"}, "threshold must be a number, got 'a'"),
        ([1.0], [0.0], {"sigma": -1.0, "estimator": "release_tests"}, "sigma must be > 0 and finite, got -1.0"),
        ([1.0], [0.0], {"rate": 2.0}, r"rate must be in \(0, 1\], got 2.0"),
        ([1.0], [0.0], {"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ([1.0], [0.0], {"deviation": "a"}, "deviation must be a number, got 'a'"),
        ([1.0], [0.0], {"sigma": 1.0}, "clopper_pearson uses no sigma: leave it out"),
        ([1.0], [0.0], {"design": "one_run", "deviation": 1.0}, "one_run uses no deviation: leave it out"),
        ("ab", [1.0], {}, "member must be an array of numbers, got 'ab'"),
        (["a", "b"], [1.0], {}, r"member must be an array of numbers, got \['a', 'b'\]"),
        ([[1.0], [1.0, 2.0]], [1.0], {}, r"member must be an array of numbers, got \[\[1.0\], \[1.0, 2.0\]\]"),
        (None, [1.0], {}, r"member must have 1 dimension\(s\), got shape \(\)"),
        ({}, [1.0], {}, "member must be an array of numbers, got {}"),
        ([1.0, 0.0], [0.0, 0.0], {"alpha": -1}, r"alpha .* must lie in \(0, 0.5\], got -1"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(member, nonmember, options, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(member, nonmember, CLAIM, **INDEPENDENT | options)


def test_one_score_a_side_shows_nothing_and_can_show_nothing():
    finding = audit_scores([1.0], [0.0], CLAIM, **INDEPENDENT, threshold=0.5)
    assert (finding.verdict, finding.measurement.epsilon_low) == (Verdict.UNDERPOWERED, 0.0)
