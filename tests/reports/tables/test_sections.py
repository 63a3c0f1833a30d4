"""The sections of each defense, and the words of each kind of federation."""

from dataclasses import replace

import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import FINAL_MODEL, GLOBAL_MODELS, PASSIVE_PARTY, UPLOADS
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables import numerals
from fedassay.reports.tables.answers import answers
from fedassay.reports.tables.pooled_rows import pooled_attacks
from fedassay.reports.tables.sections import by_defense
from fedassay.reports.tables.several_runs import by_run
from fedassay.reports.tables.stated import trust_table
from toy_claim import toy_claim


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
        assert [row[2] for row in shown.get("Claims", ())] == [numerals.lower_bound(row.epsilon_low) for row in claims]
        results = [row for row in pooled_attacks(quick_folder) if row.defense == one.defense and row.primary]
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


HORIZONTAL = {"federations": {"main": {"clients": 10, "rounds": 3}}}
VERTICAL = {"vertical": {"main": {"columns": 2, "active": False, "people": 600, "epochs": 3}}}
LABEL = replace(
    toy_claim(), unit=Unit.LABEL, adjacency=Adjacency.REPLACE_ONE, observer=PASSIVE_PARTY, curve=None, rounds=3
)


@pytest.fixture
def run_of(run_maker):
    """(tables of the suite, claims of one defense) -> the run."""

    def build(tables, *claims):
        suite = {key: value for key, value in run_maker.manifest["suite"].items() if key != "federations"}
        run_maker.manifest["suite"] = suite | tables
        for claim in claims:
            run_maker.verdict_row(run_maker.sign("mine", claim), defense="mine", attack="audit", verdict="NOT_REFUTED")
        run_maker.gate = {"verdict_line": "a line", "exit_code": 0}
        return run_maker.write()

    return build


@pytest.mark.parametrize(
    ("columns", "active", "words"),
    [
        ([["age"], ["job"], ["town"]], True, "3 parties with columns, one of them with the labels"),
        (1, False, "1 party with columns and one with the labels"),
        ("x", False, "600 people"),
    ],
)
def test_parties_are_counted_from_numbers_and_from_lists(run_of, columns, active, words):
    folder = run_of({"vertical": {"main": {"columns": columns, "active": active, "people": 600}}}, LABEL)
    assert folder.size_of("main")[0] == words


def test_what_another_claim_about_the_same_unit_covers_is_not_called_uncovered(run_of):
    folder = run_of(VERTICAL, LABEL, replace(LABEL, observer=FINAL_MODEL))
    for one, other in zip(answers(folder), (FINAL_MODEL, PASSIVE_PARTY), strict=True):
        uncovered, _, elsewhere = one.uncovered.partition("Covered by another claim of this defense:")
        assert other.phrase not in uncovered
        assert other.phrase in elsewhere
        assert "several labels at once" in uncovered
    assert {row[5] for row in trust_table(folder).rows} == {"–"}


@pytest.mark.parametrize(
    "change",
    [{"unit": Unit.SAMPLE}, {"adjacency": Adjacency.REPLACE_ONE}, {"part": "layer 1"}, {"rounds": 1}],
)
def test_a_claim_about_something_else_covers_no_adversary_of_this_one(run_of, change):
    claim = replace(toy_claim(), observer=GLOBAL_MODELS, rounds=3)
    folder = run_of(HORIZONTAL, claim, replace(claim, **({"observer": UPLOADS} | change)))
    one = answers(folder)[0]
    assert UPLOADS.phrase in one.uncovered.partition("Covered by")[0]


def test_vertical_federations_of_one_name_that_differ_have_rows_of_their_own(run_of, run_maker, tmp_path):
    first = run_of(VERTICAL, LABEL)
    same = by_run([first, first], ["a", "b"])[0]
    run_maker.manifest["suite"] = run_maker.manifest["suite"] | {"vertical": {"main": {"columns": 3, "epochs": 9}}}
    other = run_maker.write()
    differ = by_run([first, other], ["a", "b"])[0]
    assert len(same.rows) == 1
    assert [row[0] for row in differ.rows] == ["main of a", "main of b"]
