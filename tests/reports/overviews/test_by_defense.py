"""The sections per defense: each holds what the other tables hold about it, and nothing about others."""

from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables import numerals
from fedassay.reports.tables.pooled_rows import attack_grids, pooled_attacks
from fedassay.reports.tables.sections import by_defense


def tables(section):
    return {table.title: table.rows for table in section.tables}


def test_each_defense_has_its_claims_attacks_and_utility(quick_folder):
    found = by_defense(quick_folder)
    names = ["none", "dp_fedavg", "noise_halved", "dp_sgd", "no_clip", "ldp_gaussian"]
    assert [one.defense for one in found] == names
    assert [one.title for one in found if one.title != one.defense] == ["noise_halved (control)", "no_clip (control)"]
    assert len({one.key for one in found}) == len(found)
    for one in found:
        shown = tables(one)
        claims = [row for row in claim_rows(quick_folder) if row.defense == one.defense and row.stated]
        assert [row[1] for row in shown.get("Claims", ())] == [row.claim_text for row in claims]
        assert [row[3] for row in shown.get("Claims", ())] == [numerals.lower_bound(row.epsilon_low) for row in claims]
        results = [
            cell
            for grid in attack_grids(pooled_attacks(quick_folder))
            for line in grid.primary
            for cell in line.cells
            if cell and cell.defense == one.defense and cell.pooled
        ]
        assert len(shown.get("Attacks", ())) == len(results)
        assert [row[1] for row in shown["Utility"]] == ["accuracy (↑ better)"]


def test_what_no_claim_covers_is_out_of_scope(quick_folder):
    shown = {one.defense: tables(one).get("Attacks", ()) for one in by_defense(quick_folder)}
    # A claim against other clients does not cover a server that observes every update; one against it covers all.
    beyond = {row[1] for row in shown["dp_fedavg"] if row[4] == "no: OUT OF SCOPE"}
    assert "inverting_gradients" in beyond
    assert {row[4] for row in shown["ldp_gaussian"]} == {"yes", "null attack: not judged"}
    assert {row[4] for row in shown["none"]} == {"no claim", "null attack: not judged"}


def test_an_attack_on_another_unit_is_out_of_scope_although_its_adversary_is_covered(
    run_maker, add_membership, make_claim
):
    run_maker.sign("mine", make_claim(unit=Unit.REPORT, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS))
    run_maker.sign("other", make_claim(unit=Unit.SAMPLE, observer=UPLOADS))
    for defense in ("mine", "other"):
        add_membership(run_maker, defense)
    shown = {one.defense: tables(one)["Attacks"] for one in by_defense(run_maker.write())}
    assert [row[4] for row in shown["mine"]] == ["no: OUT OF SCOPE"]
    assert [row[4] for row in shown["other"]] == ["yes"]
