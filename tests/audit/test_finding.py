"""A claim speaks about evidence of its own observer or a weaker one, its unit, its neighbours, and its rounds."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import largest_certifiable_epsilon
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.curve import GaussianCurve, ProfileCurve, Tangent, mu_from_epsilon
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.evidence import Setting
from fedassay.audit.finding import (
    WEAK_TEST,
    CheckPower,
    Verdict,
    Weakness,
    accept_weak,
    beyond_all,
    beyond_scope,
    judge,
    not_audited,
    refutes,
    weak_beyond,
    with_evidence,
    with_failed_checks,
)
from fedassay.audit.measurement import GAUSSIAN_MECHANISM, Kind
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS, Observer
from fedassay.audit.power import (
    enough_trials,
    gaussian_points,
    minimum_detectable_epsilon,
    planned_for,
    power_at,
    trials_needed,
)
from fedassay.audit.threshold import FixedThreshold

MU = mu_from_epsilon(4, 1e-5)


def test_a_bound_above_the_claim_refutes_it(claim_of, measurement_of):
    finding = judge(claim_of(epsilon=3.0), measurement_of(epsilon_low=3.1))
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "eps_low")
    assert "eps >= 3.1 > 3, assuming independent trials" in finding.reason
    at_it = judge(claim_of(epsilon=3.0), measurement_of(epsilon_low=3.0))
    assert (at_it.verdict, at_it.route) == (Verdict.NOT_REFUTED, "")


def test_arguments_of_another_type_are_named(claim_of, measurement_of):
    with pytest.raises(TypeError, match=r"measurement must be a Measurement, .*, got None"):
        judge(claim_of(), None)
    with pytest.raises(TypeError, match=r"claim must be a Claim, .*, got 'eps 1'"):
        judge("eps 1", measurement_of())


def test_a_point_under_the_stated_curve_refutes_it(claim_of, measurement_of):
    finding = judge(claim_of(curve=GaussianCurve(MU)), measurement_of(below_curve=True, epsilon_low=2.2))
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "curve")
    assert "FPR <= .021, FNR <= .036" in finding.reason


def test_counts_under_a_tangent_of_the_stated_curve_refute_it_and_another_line_is_refused(claim_of, measurement_of):
    claim, tangent = claim_of(curve=GaussianCurve(MU)), Tangent.at(GaussianCurve(MU), 0.1)
    below = {"below_curve": True, "tangent": tangent, "fpr_high": None, "fnr_high": None}
    finding = judge(claim, measurement_of(**below, epsilon_low=2.2))
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "curve")
    assert "the curve implies eps .758 at delta .14737" in finding.reason.replace("0.", ".")
    with pytest.raises(ValueError, match="does not lie under the trade-off curve"):
        judge(claim_of(curve=GaussianCurve(2 * MU)), measurement_of(**below))


def test_a_ceiling_that_does_not_exceed_the_claim_is_underpowered(claim_of, measurement_of):
    for limit, verdict in ((3.9, Verdict.UNDERPOWERED), (4.0, Verdict.UNDERPOWERED), (4.1, Verdict.NOT_REFUTED)):
        assert judge(claim_of(), measurement_of(epsilon_low=0.0, ceiling=limit)).verdict is verdict


def test_with_a_curve_only_trials_that_could_not_fall_under_it_are_underpowered(claim_of, scores_of):
    # At n = 100 the ceiling of 3.28 lies below the claim of 4, but the curve of mu .925 is in reach; at 4 it is not.
    claim = claim_of(curve=GaussianCurve(MU))
    assert largest_certifiable_epsilon(100, 100, 1e-5, 0.05) < 4
    for n, refutable in ((4, False), (100, True)):
        scores = scores_of(np.arange(n) * 1.0, np.arange(n) * 1.0)
        seen = clopper_pearson(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(n / 2), curve=claim.curve)
        found = judge(claim, seen)
        assert found.verdict is Verdict.UNDERPOWERED
        assert ("would not refute the claim" in found.reason) is not refutable


def test_underpowered_states_how_many_trials_it_would_take_and_that_many_do(claim_of, scores_of):
    claim = claim_of()
    few = clopper_pearson(
        scores_of(np.ones(100), np.zeros(100)),
        delta=1e-5,
        alpha=0.05,
        threshold=FixedThreshold(0.5),
        epsilon=claim.epsilon,
    )
    reason = judge(claim, few).reason
    needed = enough_trials(8.0, curve=None, epsilon=4.0, delta=1e-5, alpha=0.05)
    assert reason.endswith(
        f"would not refute the claim; with the best attack, about {needed:,} counted runs per arm would be enough "
        f"to find a true eps of 8 {planned_for(1e-5)}"
    )
    # A Gaussian mechanism of epsilon 8 is refuted by 90 % of audits of this size at their best threshold.
    points = gaussian_points(mu_from_epsilon(8.0, 1e-5))
    plan = trials_needed(points, curve=None, epsilon=4.0, delta=1e-5, alpha=0.05)
    assert plan.trials == needed
    again = {"alpha": 0.05, "delta": 1e-5, "curve": None, "epsilon": 4.0}
    assert power_at(plan.fpr, plan.fnr, n0=needed, n1=needed, **again) >= 0.9
    found = minimum_detectable_epsilon(n0=needed, n1=needed, fpr=plan.fpr, **again)
    assert found == pytest.approx(8.0, rel=5e-3)


@pytest.mark.parametrize(("delta", "law", "needed"), [(0.0, "randomised response", 206), (1e-5, "Gaussian", 41_283)])
def test_the_runs_that_would_do_name_the_mechanism_for_which_they_do(claim_of, measurement_of, delta, law, needed):
    """Without a name, 206 and 41,283 runs for claims that differ in delta alone contradict each other."""
    few = measurement_of(n0=100, n1=100, epsilon_low=0.5, detectable=40.0, delta=delta)
    reason = judge(claim_of(delta=delta), few).reason
    assert f"{needed:,} counted runs" in reason
    assert law in reason
    # e^-8 / (1 + e^-8) are the errors of randomised response; 206 runs find it at delta 1e-5 as well.
    rate = 1 / (1 + np.exp(8.0))
    assert power_at(rate, rate, n0=206, n1=206, alpha=0.05, delta=delta, curve=None, epsilon=4.0) > 0.9


def test_evidence_of_a_stronger_observer_is_out_of_scope(claim_of, measurement_of, setting_of):
    participation = Observer("global_models", sees_participation=True)
    for observer in (AGGREGATE, UPLOADS, participation):
        finding = judge(claim_of(), measurement_of(epsilon_low=5.0, setting=setting_of(observer=observer)))
        assert finding.verdict is Verdict.OUT_OF_SCOPE
        assert observer.phrase in finding.reason
    weaker = measurement_of(epsilon_low=5.0, setting=setting_of(observer=FINAL_MODEL))
    assert judge(claim_of(), weaker).verdict is Verdict.REFUTED


def test_fewer_rounds_are_in_scope_and_another_delta_is_not(claim_of, measurement_of, setting_of):
    fewer = measurement_of(epsilon_low=5.0, setting=setting_of(rounds=3))
    assert judge(claim_of(), fewer).verdict is Verdict.REFUTED
    other = judge(claim_of(), measurement_of(epsilon_low=5.0, delta=1e-6))
    assert (other.verdict, other.reason) == (
        Verdict.OUT_OF_SCOPE,
        "epsilon was measured at delta 1e-6, but the claim states delta 1e-5",
    )


def test_a_gaussian_bound_does_not_judge_a_claim_that_states_no_gaussian_curve(claim_of, scores_of):
    # Honest randomised response at epsilon 4 makes 1.8 % errors; read as Gaussian that shows an epsilon of 26.
    randomised_response = scores_of(np.r_[np.ones(982), np.zeros(18)], np.r_[np.zeros(982), np.ones(18)])
    seen = gaussian_dp(randomised_response, delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5))
    assert seen.estimate == pytest.approx(26, abs=0.05)
    finding = judge(claim_of(mechanism="randomised response"), seen)
    assert finding.verdict is Verdict.OUT_OF_SCOPE
    assert (
        finding.reason
        == f"the bound assumes the {GAUSSIAN_MECHANISM}, but the claim states no Gaussian trade-off curve"
    )
    granted = judge(claim_of(curve=GaussianCurve(MU)), seen)
    assert (granted.verdict, granted.route) == (Verdict.REFUTED, "eps_low")
    assert f"assuming {GAUSSIAN_MECHANISM}" in granted.reason


def test_a_gaussian_bound_beside_another_curve_leaves_the_word_to_the_curve(claim_of, scores_of):
    curve = ProfileCurve((4.0,), (0.0,), (0.0,))
    randomised_response = scores_of(np.r_[np.ones(982), np.zeros(18)], np.r_[np.zeros(982), np.ones(18)])
    seen = gaussian_dp(randomised_response, delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5), curve=curve)
    assert seen.epsilon_low > 4
    assert not refutes(claim_of(curve=curve), seen)


def test_an_estimate_never_refutes(claim_of, measurement_of):
    nothing = {"epsilon_low": 0.0, "ceiling": 0.0, "below_curve": None}
    estimate = measurement_of(**nothing, kind=Kind.ESTIMATE, alpha=1.0, estimate=40.0)
    for claim in (claim_of(), claim_of(curve=GaussianCurve(MU))):
        finding = judge(claim, estimate)
        assert finding.verdict is Verdict.UNDERPOWERED
        assert finding.reason.startswith("a point estimate is not a bound, so it cannot refute a claim")
        assert "point estimate of eps 40, which is not a bound" in finding.line()


def test_no_claim_and_no_audit_are_findings(claim_of, measurement_of):
    assert judge(None, measurement_of()).verdict is Verdict.NO_CLAIM
    finding = not_audited(claim_of(), "no canary covers it")
    assert (finding.verdict, finding.measurement) == (Verdict.OUT_OF_SCOPE, None)
    assert finding.line().endswith("no canary covers it: OUT OF SCOPE")


def test_a_curve_that_the_claim_does_not_sign_is_refused(claim_of, measurement_of):
    for below in (True, False):
        with pytest.raises(ValueError, match=r"tested against a trade-off curve, but claim .* states none"):
            judge(claim_of(), measurement_of(below_curve=below))
    with pytest.raises(ValueError, match="does not lie under the trade-off curve of claim"):
        judge(claim_of(curve=GaussianCurve(8.0)), measurement_of(below_curve=True))


def test_no_line_states_more_than_its_theorem(claim_of, measurement_of):
    for finding in (
        judge(claim_of(), measurement_of()),
        judge(claim_of(epsilon=1.0), measurement_of()),
        judge(None, measurement_of()),
        not_audited(claim_of(), "no trials"),
    ):
        words = (finding.line() + finding.reason).lower()
        assert not any(word in words for word in ("private", "safe", "passed", "secure"))


def test_a_measurement_states_what_kind_it_is(measurement_of):
    for change, says in [
        ({"kind": Kind.ESTIMATE}, "alpha of an estimate must be 1, because it guarantees nothing, got 0.05"),
        (
            {"kind": Kind.ESTIMATE, "alpha": 1.0},
            "a measurement of kind estimate proves nothing, so epsilon_low and ceiling .* must be 0",
        ),
        ({"canaries": 10}, "no independent trials, got 10 canaries, 1000 trials without the canary and 1000 with it"),
        ({"canaries": 0, "n0": 0, "n1": 0}, "a one-run measurement needs at least one canary .*, got 0 canaries"),
        ({"fpr_high": None, "below_curve": True}, "below_curve .*needs fpr_high and fnr_high"),
        ({"fpr_high": float("nan")}, "fpr_high must be finite"),
        ({"epsilon_low": -0.1}, "epsilon_low must be >= 0, got -0.1"),
        ({"estimate": float("inf")}, "estimate must be finite, got inf"),
        ({"alpha": 0.0}, r"alpha must lie in \(0, 1\), got 0.0"),
        ({"delta": -1.0}, r"delta must lie in \[0, 1\), got -1.0"),
        ({"n0": 0}, "must be >= 1, got 0, 1000, 1"),
    ]:
        with pytest.raises(ValueError, match=says):
            measurement_of(**change)


def test_an_audit_that_found_no_detectable_violation_is_underpowered_whatever_it_showed(claim_of, measurement_of):
    weakness = Weakness(no_power="too few replicas")
    for shown in (0.0, 1.0):
        weak = judge(claim_of(), measurement_of(epsilon_low=shown, detectable=None), weakness=weakness)
        assert (weak.verdict, weak.reason) == (Verdict.UNDERPOWERED, "too few replicas")
    strong = judge(claim_of(), measurement_of(epsilon_low=0.0, detectable=5.0), weakness=weakness)
    assert strong.verdict is Verdict.NOT_REFUTED


@pytest.mark.parametrize("weakness", [Weakness(unknown_power="the canary did not show"), None])
def test_unknown_power_does_only_where_the_bound_would_have_refuted_a_violation_at_the_limit(
    claim_of, measurement_of, weakness
):
    # At claim 4 a bound of 2 is a half of what is true if the claim holds: of 8, the limit, the half is 4.
    for epsilon, enough in ((4.0, 2.0), (1.0, 0.5), (0.25, 0.05)):
        for shown, verdict in ((enough, Verdict.NOT_REFUTED), (0.99 * enough, Verdict.UNDERPOWERED)):
            found = judge(
                claim_of(epsilon=epsilon), measurement_of(epsilon_low=shown, detectable=None), weakness=weakness
            )
            assert found.verdict is verdict
            # Nobody can accept a power that is not known.
            assert not found.weak


CHECKED = CheckPower(detectable=4.5, assumption="its noise is smaller")


@pytest.mark.parametrize(
    ("changes", "weakness"),
    [({"ceiling": 2.0, "detectable": None}, None), ({"detectable": None}, Weakness(no_power="few"))],
)
def test_checks_of_known_power_are_evidence_where_the_runs_were_too_few(claim_of, measurement_of, changes, weakness):
    measured = measurement_of(epsilon_low=0.0, **changes)
    assert judge(claim_of(), measured, weakness=weakness).verdict is Verdict.UNDERPOWERED
    finding = judge(claim_of(), measured, weakness=weakness, checked=CHECKED)
    assert finding.verdict is Verdict.NOT_REFUTED
    assert finding.measurement.detectable == 4.5
    assert finding.reason.startswith(
        "the implementation checks fail with probability 0.9 if the true eps is at least 4.5 and its noise is"
    )


def test_checks_replace_no_canary_that_never_arrived_no_bound_and_no_refutation(claim_of, measurement_of):
    unseen = Weakness(unseen="dropped")
    for measured in (measurement_of(epsilon_low=0.0), measurement_of(epsilon_low=0.0, ceiling=2.0)):
        assert judge(claim_of(), measured, weakness=unseen, checked=CHECKED).verdict is Verdict.UNDERPOWERED
    estimated = measurement_of(epsilon_low=0.0, ceiling=0.0, kind=Kind.ESTIMATE, alpha=1.0)
    assert judge(claim_of(), estimated, checked=CHECKED).verdict is Verdict.UNDERPOWERED
    refuted = judge(claim_of(), measurement_of(epsilon_low=4.5), checked=CHECKED)
    assert (refuted.verdict, refuted.measurement.detectable) == (Verdict.REFUTED, measurement_of().detectable)


@pytest.mark.parametrize(("epsilon", "limit"), [(4.0, 8.0), (1.0, 2.0), (0.1, 1.1)])
@pytest.mark.parametrize("by_checks", [True, False])
def test_above_twice_the_claim_and_one_more_a_test_is_weak_by_runs_and_by_checks_alike(
    claim_of, measurement_of, epsilon, limit, by_checks
):
    assert weak_beyond(epsilon) == pytest.approx(limit)
    for factor, verdict in ((0.999, Verdict.NOT_REFUTED), (1.001, Verdict.UNDERPOWERED)):
        power = factor * limit
        checked = CheckPower(detectable=power, assumption="its noise is smaller") if by_checks else None
        measured = measurement_of(epsilon_low=0.0, ceiling=20.0, detectable=None if by_checks else power)
        found = judge(claim_of(epsilon=epsilon), measured, weakness=WEAK_TEST, checked=checked)
        assert (found.verdict, found.measurement.detectable) == (verdict, power)
        assert found.weak == (verdict is Verdict.UNDERPOWERED)


def test_the_smaller_power_of_runs_and_checks_is_that_of_the_claim(claim_of, measurement_of):
    for by_runs, known in ((5.0, 4.5), (4.2, 4.2), (40.0, 4.5)):
        found = judge(claim_of(), measurement_of(epsilon_low=0.0, detectable=by_runs), checked=CHECKED)
        assert (found.verdict, found.measurement.detectable) == (Verdict.NOT_REFUTED, known)


def test_checks_do_not_stand_for_what_was_not_looked_at(claim_of, measurement_of):
    blind = Weakness(not_looked_at="not looked at: noise (no check applies)")
    for detectable, verdict in ((5.0, Verdict.NOT_REFUTED), (9.0, Verdict.UNDERPOWERED), (None, Verdict.UNDERPOWERED)):
        measured = measurement_of(epsilon_low=0.0, detectable=detectable)
        found = judge(claim_of(), measured, weakness=blind, checked=CHECKED)
        assert (found.verdict, found.measurement.detectable) == (verdict, detectable)
        assert found.reason.startswith(blind.not_looked_at) == (verdict is Verdict.UNDERPOWERED)
        assert not found.weak


def test_a_weak_test_can_be_accepted_and_nothing_else_can(claim_of, measurement_of):
    weak = judge(claim_of(), measurement_of(epsilon_low=0.0, detectable=9.0))
    accepted = accept_weak(weak)
    assert (weak.verdict, accepted.verdict) == (Verdict.UNDERPOWERED, Verdict.NOT_REFUTED)
    assert accepted.line().endswith("min detectable 9: NOT REFUTED by a weak test, accepted")
    for other in (
        judge(claim_of(), measurement_of(epsilon_low=0.0, detectable=9.0), weakness=Weakness(unseen="dropped")),
        judge(claim_of(), measurement_of(epsilon_low=0.0, ceiling=2.0, detectable=None)),
        judge(claim_of(), measurement_of(epsilon_low=5.0)),
        not_audited(claim_of(), "no canary covers it"),
    ):
        assert accept_weak(other) is other


def test_a_power_without_a_number_is_refused():
    with pytest.raises(ValueError, match="detectable must be >= 0 and finite, got inf"):
        CheckPower(detectable=float("inf"), assumption="")


def test_a_canary_that_never_arrived_makes_any_claim_underpowered(claim_of, measurement_of):
    finding = judge(claim_of(), measurement_of(epsilon_low=1.0, detectable=5.0), weakness=Weakness(unseen="dropped"))
    assert (finding.verdict, finding.reason) == (Verdict.UNDERPOWERED, "dropped")
    # Its power was computed for a canary that arrives: the number is not known, so it is not printed.
    assert finding.measurement == measurement_of(epsilon_low=1.0, detectable=None)
    assert finding.line().endswith("min detectable none: UNDERPOWERED")


def test_a_refuted_claim_stays_refuted_whatever_the_weakness(claim_of, measurement_of):
    weakness = Weakness(unseen="dropped", no_power="few", unknown_power="unknown")
    finding = judge(claim_of(), measurement_of(epsilon_low=4.5, detectable=None), weakness=weakness)
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "eps_low")


def test_a_failed_check_refutes_and_is_the_route_where_statistics_did_not(claim_of, measurement_of):
    spared = judge(claim_of(), measurement_of(epsilon_low=1.0))
    refuted = judge(claim_of(), measurement_of(epsilon_low=4.5))
    assert with_failed_checks(spared, []) is spared
    by_check = with_failed_checks(spared, ["sensitivity: a row moves it by 10"])
    assert (by_check.verdict, by_check.route) == (Verdict.REFUTED, "check")
    assert with_failed_checks(refuted, ["sensitivity: a row moves it by 10"]).route == "eps_low"


def test_a_weak_test_says_how_many_runs_would_do_or_that_none_are_known(claim_of, measurement_of):
    few = measurement_of(n0=1000, n1=1000, epsilon_low=0.5, detectable=40.0)
    assert judge(claim_of(), few).reason == (
        "weak test: the minimum detectable epsilon of the runs, 40, is more than 8 (the larger of 2 eps and eps + 1); "
        "with the best attack, about 41,283 counted runs per arm would be enough to find a true eps of 8 "
        f"{planned_for(1e-5)}"
    )
    many = measurement_of(n0=50_000, n1=50_000, epsilon_low=0.5, detectable=40.0)
    assert judge(claim_of(), many).reason.endswith(
        "the best attack needs 41,283 counted runs per arm, and this attack needs more than the 50,000 that were made"
    )
    vast = measurement_of(epsilon_low=0.5, ceiling=60.0, detectable=55.0)
    assert "even 10,000,000 runs per arm would not be enough" in judge(claim_of(epsilon=20.0), vast).reason
    nothing = judge(claim_of(), measurement_of(epsilon_low=0.5, detectable=None), weakness=WEAK_TEST)
    assert nothing.reason.startswith(
        "weak test: no violation of the claim would be found with 90 % power; with the best"
    )


def test_further_evidence_refutes_what_the_first_measurement_does_not(claim_of, measurement_of):
    claim, weak = claim_of(epsilon=3.0), measurement_of(epsilon_low=1.0)
    strong = measurement_of(epsilon_low=3.5)
    finding = judge(claim, weak)
    assert (refutes(claim, weak), refutes(claim, strong)) == (False, True)
    assert with_evidence(finding, [weak]) == finding
    found = with_evidence(finding, [weak, strong])
    assert (found.verdict, found.measurement) == (Verdict.REFUTED, strong)
    # A refuted claim keeps its own evidence.
    assert with_evidence(found, [weak]) == found


CLAIM = Claim.stated(4.0, 1e-5, unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=GLOBAL_MODELS, rounds=10)
OWN = Setting.claimed(CLAIM)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"observer": FINAL_MODEL}, ""),
        ({"rounds": 3}, ""),
        (
            {"observer": UPLOADS},
            "the evidence is what the server that observes individual updates and who takes part can see, but the "
            "claim covers other",
        ),
        ({"unit": Unit.CLIENT}, "the evidence is about one client, but the claim is about one sample"),
        ({"adjacency": Adjacency.REPLACE_ONE}, "from replace-one neighbours, but the claim is about add/remove"),
        ({"rounds": 11}, "the evidence is from 11 rounds, but the claim covers 10"),
    ],
)
def test_less_than_was_claimed_is_covered_and_anything_else_is_reported(changes, says):
    found = beyond_scope(CLAIM, replace(OWN, **changes))
    assert (says in found, bool(found)) == (True, bool(says))


@pytest.mark.parametrize(
    ("field", "value"),
    [("part", "layer 1"), ("part", "a person's columns at one party"), ("subjects", "users of budget 2")],
)
def test_a_claim_of_a_part_is_silent_about_the_whole(field, value):
    limited = replace(CLAIM, **{field: value})
    assert beyond_scope(limited, OWN) == ""
    assert beyond_all(limited, OWN).endswith(f"only {value}")
    assert beyond_all(CLAIM, OWN) == ""
