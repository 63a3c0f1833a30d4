"""What is protected and who is trusted, from the claims alone."""

import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.tables.stated import trust_table


@pytest.fixture
def rows(run_maker, make_claim):
    report = {"unit": Unit.REPORT, "adjacency": Adjacency.REPLACE_ONE, "observer": UPLOADS, "dp_model": "local"}
    run_maker.sign("dp_fedavg", make_claim())
    run_maker.sign("dp_fedavg_8", make_claim(epsilon=8.0))
    run_maker.sign("noise_halved", make_claim(), control=True)
    run_maker.sign("ldp", make_claim(**report, trust="nobody"))
    run_maker.sign("ldp", make_claim(**report, part="layer 1"))
    run_maker.manifest["suite"]["federations"] = {"main": {"clients": 10, "rounds": 20}}
    return trust_table(run_maker.write()).rows


def test_claims_that_differ_in_size_alone_share_a_row_and_controls_have_none(rows):
    assert [row[-1] for row in rows] == ["dp_fedavg, dp_fedavg_8", "ldp"]


def test_a_row_states_model_neighbours_observer_trust_and_clients(rows):
    assert rows[0][:5] == (
        "central",
        "one client (add/remove)",
        "other clients (every round's model)",
        "the server is trusted",
        "10 clients",
    )
    assert rows[1][0] == "local"
    assert rows[1][3] == "nobody"
