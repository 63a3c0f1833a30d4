"""The direction of scores: losses are noticed, correct scores hardly ever taken for losses, and no bound suffers."""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.given import FALSE_ALARM, direction_test
from fedassay.audit.supplied.scores import audit_scores
from scipy.stats import binom

CLAIM = Claim.stated(1.0, 1e-5, unit="sample", adjacency="add_remove", observer="final_model")


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
        audit_scores(member, nonmember, CLAIM, design="independent", higher_is_member=higher)
    with pytest.raises(ValueError, match=r"members score higher .*state --higher-is-member"):
        audit_scores(-member, -nonmember, CLAIM, design="independent", higher_is_member=False)
    turned = audit_scores(member, nonmember, CLAIM, design="independent", higher_is_member=False)
    plain = audit_scores(-member, -nonmember, CLAIM, design="independent")
    assert turned == plain
    assert turned.verdict is Verdict.REFUTED


def test_a_fixed_threshold_of_losses_is_read_from_below():
    turned = audit_scores(
        np.zeros(100), np.ones(100), CLAIM, design="independent", higher_is_member=False, threshold=0.5
    )
    assert (turned.measurement.false_positives, turned.measurement.false_negatives) == (0, 0)


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


def test_ties_and_constant_scores_are_no_evidence():
    found = direction_test(np.ones(50), np.ones(40))
    assert (found.auc, found.p_lower, found.p_higher) == (0.5, 1.0, 1.0)


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
    # Members lie lower by exactly the claim: whoever does not know it takes what the error names.
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
