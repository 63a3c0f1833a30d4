"""What was published, what is provable, what was measured, in one row."""

import pytest
from fedassay.audit.claim import Unit
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables.stated import paper_table


@pytest.fixture
def tried(run_maker, make_claim):
    """One paper whose claim falls and one whose claim stands, beside the corrected form of the first."""

    def sign(label, verdict, low, *, variant, provable):
        parameters = {} if provable is None else {"provable_epsilon": provable}
        claim = make_claim(epsilon=10.0, unit=Unit.REPORT, parameters=parameters)
        run_maker.sign(label, claim, variant=variant)
        run_maker.verdict_row(
            claim,
            cell_id=label,
            defense=label,
            value=low,
            verdict=verdict,
            route="eps_low",
            variant=variant,
            artifact=run_maker.arrays(label, "scores", fpr_high=0.0207, fnr_high=0.035),
            reason="eps >= 12 > 10; witness: two rows; probe: sensitivity 2 > 1 allowed (a row)",
        )

    sign("fedre", "NOT_REFUTED", 3.0, variant="corrected", provable=None)
    sign("fedre_as_published", "REFUTED", 12.0, variant="as_published", provable=25.8)
    sign("apes_as_published", "NOT_REFUTED", 1.0, variant="as_published", provable=None)
    return run_maker.write()


def test_each_paper_has_a_row_and_the_corrected_form_has_none(tried):
    rows = {row[0]: row[2:] for row in paper_table(claim_rows(tried)).rows}
    assert set(rows) == {"fedre_as_published", "apes_as_published"}
    assert rows["fedre_as_published"] == ("10.0", "25.8", "12", "REFUTED", "two rows; FPR <= .021, FNR <= .035")
    assert rows["apes_as_published"] == ("10.0", "–", "1", "NOT REFUTED", "")


@pytest.mark.parametrize("name", ["witness", "evidence"])
@pytest.mark.parametrize("end", ["", "; probe: broken", "; implementation check: broken"])
def test_reasons_of_every_version_give_the_evidence_of_a_refutation(run_maker, make_claim, name, end):
    claim = make_claim(epsilon=10.0)
    run_maker.sign("fedre", claim, variant="as_published")
    reason = f"eps >= 12 > 10; {name}: two rows; one event{end}"
    run_maker.verdict_row(claim, defense="fedre", value=12.0, verdict="REFUTED", variant="as_published", reason=reason)
    assert paper_table(claim_rows(run_maker.write())).rows[0][-1] == "two rows; one event"


def test_where_nothing_is_provable_the_table_gives_none(run_maker, make_claim):
    claim = make_claim(parameters={"provable": "none: the noise depends on the data"})
    run_maker.sign("fedre", claim, variant="as_published")
    ((_, _, _, provable, *_),) = paper_table(claim_rows(run_maker.write())).rows
    assert provable == "none"
