"""Claims, the adversaries that they cover, and what attacks say of them."""

import pytest
from fedassay.audit.claim import Claim, Unit
from fedassay.audit.observer import ACTIVE_PARTY, ANSWERS, FINAL_MODEL, LADDER, PASSIVE_PARTY, UPLOADS
from fedassay.reports.figures.claims import privacy_utility
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import claim_lines
from fedassay.reports.reading.claims import adversaries, claim_rows, left_unprotected, one_row_per_claim
from fedassay.reports.tables.printed import claim_table
from fedassay.reports.tables.summary import claims_note


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


SHARED = {"metric": "epsilon_low", "seed": None, "ceiling": 4.5, "value": 1.0, "route": "eps_low"}
AUDIT = SHARED | {"role": "audit", "attack": "canary", "n": 500}
ATTACKS = SHARED | {"role": "evidence", "attack": "membership", "n": 800, "observer": "final_model", "seed": 0}


@pytest.fixture
def signed(run_maker, make_claim):
    """(control) -> the fields of a row of dp_sgd's claim about one sample."""

    def sign(control=False):
        claim = run_maker.sign("dp_sgd", make_claim(unit=Unit.SAMPLE), control=control)
        return {"defense": "dp_sgd", "claim_id": claim.claim_id, "control": control}

    return sign


def test_an_audit_and_attacks_are_two_rows_of_one_claim(run_maker, signed):
    row = signed()
    run_maker.row(**ATTACKS, **row, verdict="UNDERPOWERED")
    run_maker.row(**AUDIT, **row, verdict="NOT_REFUTED")
    rows = claim_rows(run_maker.write())
    assert [(one.verdict, one.by_attacks) for one in rows] == [("NOT_REFUTED", False), ("UNDERPOWERED", True)]
    assert [line[5] for line in claim_table(rows).rows] == ["500", "800 samples, one run, by attacks"]
    assert "By attacks: the scores of all attacks on final models" in claims_note(rows)
    assert "By attacks" not in claims_note(rows[:1])


@pytest.mark.parametrize(
    ("control", "verdict", "alarming"),
    [
        (False, "REFUTED", True),
        (False, "UNDERPOWERED", False),
        (True, "REFUTED", False),
        (True, "UNDERPOWERED", False),
    ],
)
def test_a_control_need_not_fall_to_attacks(run_maker, signed, control, verdict, alarming):
    run_maker.row(**ATTACKS, **signed(control), verdict=verdict, reason="eps")
    folder = run_maker.write()
    (one,) = claim_rows(folder)
    assert one.needs_attention is alarming
    (line,) = claim_lines(folder)
    assert line.endswith(f"by the bound on eps, by attacks on final models: {verdict}")
    for page in (html(folder), markdown(folder)):
        assert "it must be REFUTED" not in page
        assert verdict in page


def test_a_point_of_privacy_and_utility_is_drawn_once_a_claim(run_maker, signed):
    row = signed()
    run_maker.row(**AUDIT, **row, verdict="NOT_REFUTED")
    run_maker.row(**ATTACKS | {"value": 5.0}, **row, verdict="REFUTED")
    run_maker.accuracy_row(defense="dp_sgd", value=0.9)
    folder = run_maker.write()
    assert [one.verdict for one in one_row_per_claim(claim_rows(folder))] == ["REFUTED"]
    assert [line[2] for line in privacy_utility(folder).table.rows] == ["5.00"]


def test_attacks_without_an_answer_leave_the_claim_not_audited(run_maker, signed):
    row = signed() | {"metric": "none", "value": None, "status": "skipped", "reason": "no attack has an answer"}
    run_maker.row(**ATTACKS | row)
    assert [one.verdict for one in claim_rows(run_maker.write())] == ["NOT_AUDITED"]
