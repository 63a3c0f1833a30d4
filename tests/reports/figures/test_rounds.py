"""Curves over the rounds and over what was spent, and nothing where neither is known."""

import re
from xml.etree import ElementTree

from fedassay.audit.observer import UPLOADS
from fedassay.reports.figures.curves import accuracy_spent, leakage_by_round
from fedassay.reports.figures.frame import INK, chosen, left_out_words
from fedassay.reports.reading.pooling import thinned


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


SPENT = [(1, 1.5), (2, 2.5), (3, 4.0)]


def leaks(run_maker, defense="dp_fedavg", attack="cosine", curves=((0.5, 0.6, 0.7), (0.5, 0.7, 0.9)), **fields):
    for seed, curve in enumerate(curves):
        cell = f"{attack}_{defense}_{seed}"
        run_maker.rounds(cell, list(curve), name="auc")
        row = {"cell_id": cell, "defense": defense, "attack": attack, "seed": seed, "value": curve[-1]}
        run_maker.row(**row, **fields)


def learns(run_maker, defense, *curves):
    for seed, curve in enumerate(curves):
        artifact = run_maker.rounds(f"t_{defense}_{seed}", list(curve))
        row = {"cell_id": f"t_{defense}_{seed}", "role": "utility", "attack": "training", "metric": "accuracy"}
        run_maker.row(**row, defense=defense, seed=seed, value=curve[-1], artifact=artifact)


def test_leakage_is_the_mean_of_the_seeds_beside_what_the_claim_has_spent(run_maker, make_claim):
    leaks(run_maker)
    run_maker.sign("dp_fedavg", make_claim(), spent=SPENT)
    (figure,) = leakage_by_round(run_maker.write())
    assert [row[:3] for row in figure.table.rows] == [
        ("dp_fedavg", f"{n}", e) for n, e in ((1, "1.50"), (2, "2.50"), (3, "4.00"))
    ]
    assert [row[3].split()[0] for row in figure.table.rows] == ["0.500", "0.650", "0.800"]
    ElementTree.fromstring(figure.svg)


def scored(run_maker, add_membership, attack="cosine", **fields):
    """Scores of samples at the server that observes individual updates, with an AUC by round."""
    add_membership(run_maker, "dp_fedavg", attack, **fields)
    run_maker.rounds(f"main_{attack}_dp_fedavg_0", [0.5, 0.6, 0.7], name="auc")


def evidence(folder):
    (figure,) = leakage_by_round(folder)
    (words,) = {row[-1] for row in figure.table.rows}
    # Long words are broken into lines.
    assert re.search("AUC of (.*?) (?:ε of|no ε)", " ".join(texts(figure.svg)))[1].replace("_ ", "_") == words
    return words


def test_an_auc_about_another_unit_than_the_epsilon_below_is_out_of_scope(run_maker, make_claim, add_membership):
    scored(run_maker, add_membership)
    run_maker.sign("dp_fedavg", make_claim(unit="client", observer=UPLOADS), spent=SPENT)
    assert evidence(run_maker.write()) == "one sample: OUT OF SCOPE"


def test_an_auc_that_a_claim_covers_states_its_unit_and_what_is_not_covered_is_named(
    run_maker, make_claim, add_membership
):
    scored(run_maker, add_membership)
    run_maker.sign("dp_fedavg", make_claim(unit="sample", observer=UPLOADS), spent=SPENT)
    assert evidence(run_maker.write()) == "one sample"
    scored(run_maker, add_membership, "of_clients", unit="client")
    assert evidence(run_maker.write()) == "one client and one sample: OUT OF SCOPE (of_clients)"


def test_a_claim_that_does_not_say_what_it_spends_leaves_the_lower_panel_empty(run_maker, make_claim):
    leaks(run_maker)
    run_maker.sign("dp_fedavg", make_claim())
    folder = run_maker.write()
    (figure,) = leakage_by_round(folder)
    assert {row[2] for row in figure.table.rows} == {"–"}
    assert "no ε by round is stated" in figure.svg
    assert accuracy_spent(folder) is None


def test_of_many_defenses_the_twelve_that_leak_most_are_drawn_and_all_are_in_the_table(run_maker):
    for place in range(14):
        leaks(run_maker, defense=f"d{place:02d}", curves=((0.5, 0.5 + place / 100),))
    (figure,) = leakage_by_round(run_maker.write())
    assert {row[0] for row in figure.table.rows} == {f"d{place:02d}" for place in range(14)}
    assert [f">d{place:02d}<" in figure.svg for place in range(14)] == [False] * 2 + [True] * 12
    assert figure.description.endswith("Drawn: the 12 of 14 panels with the highest AUC; all are in the table.")


def test_null_attacks_do_not_choose_the_panels():
    assert chosen(["a", "b", "c"], [0.1, 0.9, 0.9], most=2) == ["b", "c"]
    assert chosen(["a", "b", "c"], [0.5, 0.5, 0.5], most=2) == ["a", "b"]
    assert left_out_words(3, 3, "x") == ""


def test_accuracy_stands_at_what_was_spent_by_the_same_round(run_maker, make_claim):
    learns(run_maker, "dp_fedavg", (0.1, 0.2, 0.3), (0.3, 0.4, 0.5))
    learns(run_maker, "none", (0.5, 0.8, 0.9))
    # The claim says nothing of round 2.
    run_maker.sign("dp_fedavg", make_claim(), spent=[SPENT[0], SPENT[2]])
    figure = accuracy_spent(run_maker.write())
    assert [(*row[2:4], row[4].split()[0]) for row in figure.table.rows] == [
        ("1", "1.50", "0.200"),
        ("3", "4.00", "0.400"),
    ]
    assert INK in figure.svg


def test_the_loss_stands_below_the_accuracy_at_the_same_epsilon(run_maker, make_claim):
    artifact = run_maker.rounds("t", [0.1, 0.2, 0.3], loss=[2.0, 1.5, 1.0])
    for metric, value in (("accuracy", 0.3), ("loss", 1.0)):
        run_maker.accuracy_row(defense="dp_fedavg", metric=metric, value=value, artifact=artifact)
    run_maker.sign("dp_fedavg", make_claim(), spent=SPENT)
    figure = accuracy_spent(run_maker.write())
    assert [row[3:] for row in figure.table.rows] == [
        ("1.50", "0.100", "2.000"),
        ("2.50", "0.200", "1.500"),
        ("4.00", "0.300", "1.000"),
    ]
    assert ">test loss<" in figure.svg


def test_claims_of_other_units_have_panels_of_their_own(run_maker, make_claim):
    for defense, unit in (("dp_fedavg", "client"), ("dp_sgd", "sample")):
        learns(run_maker, defense, (0.1, 0.2, 0.3))
        run_maker.sign(defense, make_claim(unit=unit), spent=SPENT)
    figure = accuracy_spent(run_maker.write())
    assert "one client (add/remove)" in figure.svg
    assert "one sample (add/remove)" in figure.svg


def test_a_table_thins_a_curve_evenly_and_keeps_its_end():
    assert thinned(range(1, 21), 5) == [4, 8, 12, 16, 20]
    assert thinned([3, 1, 2], 5) == [1, 2, 3]
    assert thinned([], 5) == []
