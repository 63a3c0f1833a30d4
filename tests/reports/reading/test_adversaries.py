"""Claims of each kind of federation are compared with the adversaries that this kind has."""

import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.observer import ACTIVE_PARTY, ANSWERS, FINAL_MODEL, LADDER, PASSIVE_PARTY, UPLOADS
from fedassay.reports.reading.claims import adversaries, left_unprotected


@pytest.mark.parametrize(
    ("unit", "observer", "wanted"),
    [
        ("label", PASSIVE_PARTY, (FINAL_MODEL, PASSIVE_PARTY)),
        ("label", FINAL_MODEL, (FINAL_MODEL, PASSIVE_PARTY)),
        ("sample", ACTIVE_PARTY, (FINAL_MODEL, PASSIVE_PARTY, ACTIVE_PARTY)),
        ("client", ANSWERS, (FINAL_MODEL, ANSWERS, UPLOADS)),
        ("client", FINAL_MODEL, LADDER),
    ],
)
def test_a_claim_has_the_adversaries_of_its_kind_of_federation(unit, observer, wanted):
    claim = Claim.stated(1.0, unit=unit, observer=observer)
    assert adversaries(claim) == wanted
    named = left_unprotected(claim)
    assert all((f"against {one.phrase}" in named) == (not observer.covers(one)) for one in wanted)
    assert any("take part in a round" in words for words in named) == (wanted == LADDER)
