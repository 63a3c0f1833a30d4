"""Tables with one row per claim, attack or metric, and one column per run."""

import pytest
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.reports.tables.several_runs import by_run


@pytest.fixture
def runs(make_run, make_claim):
    """Three runs of one suite: the defense `mine` is refuted in the last, which lacks what the others have."""
    folders = []
    for number, name in enumerate(("old", "new", "broken")):
        run = make_run(name)
        run.manifest["run_id"] = name
        run.row(defense="none", value=0.9)
        run.row(defense="mine", value=0.5 + number / 10)
        if name != "broken":
            run.accuracy_row(defense="mine", value=0.7 + number / 10)
        signed = run.sign("mine", make_claim(epsilon=4.0))
        refuted = name == "broken"
        run.verdict_row(
            signed,
            defense="mine",
            verdict="REFUTED" if refuted else "NOT_REFUTED",
            value=6.5 if refuted else 1.25,
            detectable={"old": 5.0, "new": 50.0, "broken": None}[name],
        )
        folders.append(run.write())
    return folders


def tables(runs):
    return {table.title: table for table in by_run(runs, ["old", "new", "broken"])}


def test_each_run_is_a_column_and_each_claim_one_row(runs):
    claims = tables(runs)["Claims by run"]
    assert claims.headers == ("federation", "defense", "claim", "old", "new", "broken")
    [row] = claims.rows
    assert row[:2] == ("main", "mine")
    assert row[3:] == (
        "NOT REFUTED; measured ε ≥ 1.25; min detectable 5.00",
        "NOT REFUTED (weak test); measured ε ≥ 1.25; min detectable 50.00",
        "REFUTED; measured ε ≥ 6.50",
    )


def test_attacks_and_utility_stand_in_the_column_of_their_own_run(runs):
    attacks = {row[:3]: row[4:] for row in tables(runs)["Attacks by run"].rows}
    assert [text[:5] for text in next(cells for key, cells in attacks.items() if key[1] == "mine")] == [
        "0.500",
        "0.600",
        "0.700",
    ]
    [utility] = tables(runs)["Utility by run"].rows
    assert [text[:5] for text in utility[3:]] == ["0.700", "0.800", "–"]


def test_claims_with_another_epsilon_or_delta_never_share_a_row(make_run, make_claim):
    folders = []
    for number, terms in enumerate(({"epsilon": 4.0}, {"epsilon": 2.0}, {"epsilon": 4.0, "delta": 1e-6})):
        run = make_run(str(number))
        run.manifest["run_id"] = str(number)
        run.verdict_row(run.sign("mine", make_claim(**terms)), defense="mine", verdict="NOT_REFUTED")
        folders.append(run.write())
    [claims] = by_run(folders, "abc")
    assert len(claims.rows) == 3
    assert [[text != "–" for text in row[3:]] for row in claims.rows] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_federations_of_one_name_but_another_model_never_share_a_row(make_run):
    folders = []
    for name, model in (("a", "mlp"), ("b", "mlp"), ("c", "logistic")):
        run = make_run(name)
        run.manifest["run_id"] = name
        run.manifest["suite"] = {
            **run.manifest["suite"],
            "federations": {"main": {"dataset": "digits", "model": model}},
        }
        run.row(defense="none", value=0.5)
        folders.append(run.write())
    [attacks] = by_run(folders[:2], "ab")
    assert [row[0] for row in attacks.rows] == ["main"]
    [attacks] = by_run(folders, "abc")
    assert [row[0] for row in attacks.rows] == ["main of a", "main of b", "main of c"]


def test_rows_of_one_defense_stay_together_where_a_later_run_adds_some(make_run):
    folders = []
    for name, attacks in (("a", ("loss",)), ("b", ("loss", "dot"))):
        run = make_run(name)
        run.manifest["run_id"] = name
        for defense in ("none", "mine"):
            for attack in attacks:
                run.row(defense=defense, attack=attack, value=0.5)
        folders.append(run.write())
    [attacks] = by_run(folders, "ab")
    assert [row[1] for row in attacks.rows] == ["none", "none", "mine", "mine"]


def test_results_that_no_claim_covers_are_marked(make_run, make_claim):
    run = make_run("a")
    run.sign("mine", make_claim(observer=GLOBAL_MODELS))
    for defense in ("none", "mine"):
        run.row(defense=defense, attack="tried", observer="uploads", value=0.9)
    folder = run.write()
    attacks = next(table for table in by_run([folder], ["a"]) if table.title == "Attacks by run")
    assert {row[1]: row[4].endswith("(out of scope)") for row in attacks.rows} == {"none": False, "mine": True}
