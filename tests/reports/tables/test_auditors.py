"""Kills and false alarms side by side."""

import pytest
from fedassay.reports.tables.auditors import mutant_rows, mutant_table


@pytest.fixture
def hunted(run_maker, make_claim):
    """Three mutants: one refuted, one only by its check, one missed whose correct version is refuted."""
    claim = make_claim()

    def edition(label, *, control, verdict, refuted, route="curve", broken=()):
        run_maker.sign(label, claim, control=control, federation="mechanisms")
        same = {"cell_id": label, "defense": label, "control": control, "federation": "mechanisms"}
        for seed, value in enumerate(refuted):
            run_maker.row(role="replicas", metric="refuted", value=value, n=1200, seed=seed, **same)
        for verdict_of_check in broken:
            run_maker.row(role="check", metric="check_sensitivity", value=2.0, verdict=verdict_of_check, **same)
        run_maker.verdict_row(claim, verdict=verdict, route=route, **same)

    edition("loud", control=True, verdict="REFUTED", refuted=[1.0, 0.0])
    edition("loud (correct version)", control=False, verdict="NOT_REFUTED", refuted=[0.0, 0.0])
    edition("silent", control=True, verdict="REFUTED", route="check", refuted=[0.0, 0.0], broken=["FAILED", "PASSED"])
    edition(
        "silent (correct version)",
        control=False,
        verdict="NOT_REFUTED",
        refuted=[0.0, 0.0],
        broken=["PASSED", "PASSED"],
    )
    edition("missed", control=True, verdict="NOT_REFUTED", refuted=[0.0, 0.0])
    edition("missed (correct version)", control=False, verdict="REFUTED", refuted=[0.0, 1.0])
    return run_maker.write()


def test_a_row_a_mutant_and_a_line_that_counts_them(hunted):
    table = mutant_table(mutant_rows(hunted))
    assert [row[0] for row in table.rows] == ["loud", "missed", "silent"]
    assert table.rows[0][1:7] == ("1\u202f200", "1 of 2", "REFUTED", "–", "0 of 2", "NOT REFUTED")
    assert table.rows[2][2:5] == ("0 of 2", "REFUTED by implementation check", "sensitivity")
    assert table.note == (
        "2 of 3 mutants refuted: 1 by statistics, 1 by implementation checks alone. With the runs of one seed alone, "
        "mutants were refuted in 1 of 4 tests. Correct versions refuted: 1 of 3 (1 of 6 tests of one seed)."
    )


def test_a_mutant_that_failed_has_no_verdict_and_is_not_counted_as_refuted(run_maker):
    same = {"cell_id": "m", "defense": "m", "control": True}
    run_maker.row(role="replicas", metric="refuted", value=1.0, seed=0, **same)
    table = mutant_table(mutant_rows(run_maker.write()))
    assert table.rows[0][3] == "–"
    assert table.note.startswith("0 of 1 mutant refuted")
