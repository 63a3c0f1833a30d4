"""Outputs of runs that were made before: half of them learn an event, and the other half is counted."""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_outputs


def test_outputs_are_audited_from_python_too():
    rng, claim = np.random.default_rng(0), Claim.stated(1.0, 1e-5)
    out, within = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 9
    assert audit_outputs(out, within, claim).verdict is Verdict.REFUTED
    assert audit_outputs(out, within, claim, estimator="hockey_stick").measurement.estimator == "hockey_stick"
    with pytest.raises(ValueError, match="member must hold at least 8 outputs, got 3"):
        audit_outputs(out, within[:3], claim)
    with pytest.raises(ValueError, match="must have the same type and shape"):
        audit_outputs(out, within[:, :1], claim)


@pytest.mark.simulations
def test_outputs_at_the_claim_are_refuted_no_oftener_than_alpha(most_false_alarms):
    rng, claim, repeats = np.random.default_rng(0), Claim.stated(delta=1e-5, mu=1.0), 60
    found = (audit_outputs(rng.normal(size=120), rng.normal(1, 1, 120), claim).verdict for _ in range(repeats))
    assert sum(verdict is Verdict.REFUTED for verdict in found) <= most_false_alarms(repeats, 0.05)
