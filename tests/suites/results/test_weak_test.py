"""A verdict line and the badge of a report call the same tests weak."""

import dataclasses
import itertools

import pytest
from fedassay.reports.reading.claims import ClaimRow
from fedassay.reports.tables.answers import weakness
from fedassay.suites.results.claims_file import stated_claims
from fedassay.suites.results.outcome import weak_because
from fedassay.suites.results.record import Record
from row_facts import FACTS
from toy_claim import toy_claim


def claim_row(verdict, detectable, epsilon):
    """The row of a report about a claim of this epsilon."""
    claim = dataclasses.replace(toy_claim(), epsilon=epsilon, curve=None)
    names = {"claim_id": claim.claim_id, "defense": "d", "federation": "main", "control": False}
    (stated,) = stated_claims({"schema": "claims-1", "claims": [names | {"claim": claim.to_dict()}]})
    fields = {"cell_id": "c", "defense": "d", "role": "audit", "metric": "epsilon_low", "verdict": verdict}
    record = Record(**FACTS | fields | {"detectable": detectable, "value": 0.5})
    return ClaimRow(defense="d", federation="main", stated=stated, record=record)


@pytest.mark.parametrize(
    ("verdict", "detectable", "epsilon"),
    list(itertools.product(["NOT_REFUTED", "REFUTED", "UNDERPOWERED"], [None, 2.9, 3.0, 3.1, 40.0], [1.0, 8.0])),
)
def test_both_use_one_rule(verdict, detectable, epsilon):
    assert weak_because(verdict, detectable, epsilon) == weakness(claim_row(verdict, detectable, epsilon))


def test_only_a_test_that_did_not_refute_is_weak():
    assert weak_because("NOT_REFUTED", 3.1, 1.0)
    assert weak_because("NOT_REFUTED", None, 1.0)
    assert not weak_because("NOT_REFUTED", 3.0, 1.0)
    assert not weak_because("REFUTED", None, 1.0)
