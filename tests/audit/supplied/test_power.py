"""The power of audits of supplied evidence: events with exchanged roles, and estimators that compute no power."""

import numpy as np
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.scores import audit_scores

CLAIM = Claim.stated(delta=1e-5, mu=1.0)
RUNS = {"design": "independent", "higher_is_member": True}


def test_an_event_that_is_nearly_certain_has_the_power_of_its_complement():
    # The threshold lies 2 below the nonmembers' mean, or 3 above the members': the same test in exchanged roles.
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)
    low = audit_scores(member, nonmember, CLAIM, threshold=-2.0, **RUNS).measurement
    high = audit_scores(1 - nonmember, 1 - member, CLAIM, threshold=3.0, **RUNS).measurement
    assert (low.false_positives, low.false_negatives) == (high.false_negatives, high.false_positives)
    assert low.detectable == high.detectable is not None


def test_an_estimator_whose_power_is_not_known_is_weak_where_nothing_was_shown():
    rng, claim = np.random.default_rng(0), Claim.stated(2.0, 1e-5)
    options = {"estimator": "sequential", "threshold": 2.5, **RUNS}
    nothing = audit_scores(rng.normal(size=600), rng.normal(size=600), claim, **options)
    assert (nothing.verdict, nothing.measurement.detectable) == (Verdict.UNDERPOWERED, None)
    assert "the power of this estimator is not known" in nothing.reason
    refuted = audit_scores(rng.normal(5.0, 1, 600), rng.normal(0, 1, 600), claim, **options)
    assert (refuted.verdict, refuted.measurement.detectable) == (Verdict.REFUTED, None)
