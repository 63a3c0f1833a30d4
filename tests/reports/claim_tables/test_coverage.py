"""What the checks of a claim looked at stands in the report, at the run and at the gate."""

from fedassay.reports.formats.markdown import markdown
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.reports.tables.stated import coverage_lines, coverage_table


def test_one_line_for_equal_statements_and_a_table_with_the_reasons(run_maker, make_claim):
    claim = make_claim()
    for label in ("one", "two"):
        run_maker.sign(label, claim)
        seen = {"looked_at": ["noise scale"], "not_looked_at": ["timing: no check measures it"]}
        run_maker.verdict_row(claim, cell_id=label, defense=label, verdict="NOT_REFUTED", **seen)
    folder = run_maker.write()
    line = "checks one, two: 1 item looked at; not looked at: timing"
    assert coverage_lines(folder) == [line]
    assert line in judge_folder(folder).outcome.details
    (first, _) = coverage_table(claim_rows(folder)).rows
    assert first[2:] == ("noise scale", "timing: no check measures it")
    assert "timing: no check measures it" in markdown(folder)
