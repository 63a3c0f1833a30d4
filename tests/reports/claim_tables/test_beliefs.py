"""What claims let an adversary believe: the overview's 0.98 at epsilon 4, and nothing printed where nothing holds."""

import math

import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.tables.sections import run_tables
from fedassay.reports.tables.stated import belief_table

LOCAL = {"unit": Unit.REPORT, "adjacency": Adjacency.REPLACE_ONE, "observer": UPLOADS, "dp_model": "local"}


def test_a_pure_claim_bounds_beliefs_and_one_with_delta_only_guesses(run_maker, make_claim):
    run_maker.sign("pure", make_claim(**LOCAL, epsilon=4.0, delta=0.0))
    run_maker.sign("approximate", make_claim(epsilon=4.0, delta=0.01))
    folder = run_maker.write()
    rows = {row[0]: row[3:] for row in belief_table(folder).rows}
    # 1 / (1 + e^-4) = .98201, and 1 - .99 / (1 + e^4) = .98219, both rounded up.
    assert rows["pure"] == ("0.983", "0.983", "8", "0")
    assert rows["approximate"][:3] == ("–", "0.983", "8")
    assert float(rows["approximate"][3]) == pytest.approx(0.01 * (1 + math.exp(4)), abs=1e-6)
    assert belief_table(folder).title in {table.title for table in run_tables(folder)}


def test_controls_and_single_layers_have_no_row(run_maker, make_claim):
    run_maker.sign("noise_halved", make_claim(), control=True)
    run_maker.sign("ldp", make_claim(**LOCAL, part="layer 1"))
    assert belief_table(run_maker.write()).rows == ()


def test_equal_claims_of_one_defense_share_a_row_and_other_epsilons_have_their_own(run_maker, make_claim):
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=1.0, delta=0.0))
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=1.0, delta=0.0, trust="nobody"))
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=8.0, delta=0.0))
    assert [row[2] for row in belief_table(run_maker.write()).rows] == ["1", "8"]
