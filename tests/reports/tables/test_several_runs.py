"""Several runs: side by side with one column per run, and all their rows with the name of the run."""

import re

import pytest
from fedassay.reports.formats.exports import spreadsheet
from fedassay.reports.formats.latex import latex
from fedassay.reports.formats.markdown import markdown_of_several as markdown
from fedassay.reports.formats.page import html_of_several as html
from fedassay.reports.formats.write import read_runs, write_files
from fedassay.reports.tables.sections import run_tables
from fedassay.reports.tables.several_runs import all_rows, by_run, chosen_table, merged, overview, run_labels, tables_of
from fedassay.reports.tables.table import Table
from page_script import without_marks, without_script


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
            weak=name == "new",
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
        "NOT REFUTED by a weak test, accepted; measured ε ≥ 1.25; min detectable 50.00",
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


def table(*rows, headers=("attack", "metric", "none", "n"), note=""):
    return Table(
        title="Attacks", headers=headers, rows=rows, numeric=frozenset(range(2, len(headers))), note=note, about=2
    )


@pytest.fixture
def two(make_run, make_claim):
    """Runs of two suites: they share the undefended federation, and each has a defense that the other has not."""
    first, second = make_run("monday"), make_run("tuesday")
    second.manifest |= {"suite": {**second.manifest["suite"], "name": "other", "version": "7"}, "run_id": "t" * 12}
    for run, defense, value in ((first, "dp_sgd", 0.55), (second, "fedsel", 0.75)):
        run.row(defense="none", value=value + 0.1)
        run.row(defense=defense, value=value)
        run.accuracy_row(defense=defense, value=value)
        signed = run.sign(defense, make_claim(epsilon=10 * value))
        run.verdict_row(signed, defense=defense, verdict="NOT_REFUTED")
    first.gate = {"verdict_line": "OK: 1 claim NOT REFUTED", "exit_code": 0}
    first.manifest["planned_cells"] = 4
    second.manifest["command"] = "fedassay run other"
    return [first.write(), second.write()]


def test_rows_about_the_same_thing_stand_together():
    joined = merged(
        [
            ("a", table(("loss", "AUC", "0.5", "3"), ("dot", "AUC", "0.7", "3"))),
            ("b", table(("dot", "AUC", "0.8", "4"), ("new", "AUC", "0.9", "4"))),
        ]
    )
    assert joined.headers == ("attack", "metric", "run", "none", "n")
    assert joined.rows == (
        ("loss", "AUC", "a", "0.5", "3"),
        ("dot", "AUC", "a", "0.7", "3"),
        ("dot", "AUC", "b", "0.8", "4"),
        ("new", "AUC", "b", "0.9", "4"),
    )
    assert joined.numeric == {3, 4}


def test_columns_that_one_run_lacks_are_empty_in_its_rows_and_the_last_stays_last():
    joined = merged(
        [
            ("a", table(("loss", "AUC", "0.5", "0.6", "3"), headers=("attack", "metric", "none", "x", "n"))),
            ("b", table(("loss", "AUC", "0.7", "0.8", "4"), headers=("attack", "metric", "none", "y", "n"))),
        ]
    )
    assert joined.headers == ("attack", "metric", "run", "none", "x", "y", "n")
    assert joined.rows == (("loss", "AUC", "a", "0.5", "0.6", "–", "3"), ("loss", "AUC", "b", "0.7", "–", "0.8", "4"))


def test_a_defense_called_as_a_column_is_keeps_its_own():
    headers = ("attack", "metric", "n", "metric", "n")
    joined = merged(
        [
            ("a", table(("loss", "AUC", "0.1", "0.2", "3"), headers=headers)),
            ("b", table(("loss", "AUC", "0.3", "4"), headers=("attack", "metric", "metric", "n"))),
        ]
    )
    assert joined.rows == (("loss", "AUC", "a", "0.1", "0.2", "3"), ("loss", "AUC", "b", "–", "0.3", "4"))


def test_every_row_of_every_run_is_there(two):
    own = all_rows(two)
    assert tables_of(two) == [*by_run(two, run_labels(two)), *own]
    assert sum(len(table.rows) for table in own) == sum(len(table.rows) for run in two for table in run_tables(run))
    for one in own:
        place = one.headers.index("run")
        assert {row[place] for row in one.rows} <= {"monday", "tuesday"}


def test_the_overview_states_what_each_run_was_and_what_came_of_it(two):
    assert [row[:2] for row in overview(two).rows] == [
        ("monday", "quick, version 1"),
        ("tuesday", "other, version 7"),
    ]
    line, code = overview(two).rows[0][4:]
    assert line.startswith("OK: 1 claim NOT REFUTED")
    assert code == "0"
    assert overview(two).rows[1][4].startswith("UNFINISHED: 4 of 108")
    assert overview(two).rows[1][5] == "–"


@pytest.mark.simulations
def test_page_and_markdown_hold_verdicts_tables_and_the_source_of_each_run(two):
    for text in (html(two), markdown(two)):
        for words in (
            "2 runs",
            "OK: 1 claim NOT REFUTED",
            "UNFINISHED",
            "dp_sgd",
            "fedsel",
            "fedassay run other",
        ):
            assert words in without_marks(text).replace("dp<wbr>", "dp")
        assert text.count("r" * 12) == text.count("t" * 12) == 1
    assert len(html(two).encode()) < 100_000


def test_runs_of_one_name_are_kept_apart_by_their_path(make_run):
    runs = [make_run(f"{place}/out") for place in "ab"]
    folders = []
    for number, run in enumerate(runs):
        run.manifest["run_id"] = str(number)
        folders.append(run.write())
    assert run_labels(folders) == [f"out ({run.path})" for run in runs]


def test_the_same_run_twice_is_refused_by_path_and_as_a_copy(two, tmp_path):
    path = two[0].path
    with pytest.raises(ValueError, match="which hold the same run"):
        read_runs([path, two[1].path, path / ".." / path.name])
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("manifest.json", "results.jsonl"):
        (copy / name).write_bytes((path / name).read_bytes())
    with pytest.raises(ValueError, match="which hold the same run"):
        read_runs([path, copy])
    assert len(read_runs([path, two[1].path])) == 2


@pytest.mark.simulations
def test_all_formats_are_written_at_once_or_none(two, tmp_path):
    names = {"html": "a.html", "md": "a.md", "latex": "a.tex", "csv": "a.csv", "claims": "a.json"}
    wanted = {name: tmp_path / "new" / file for name, file in names.items()}
    assert write_files(two, wanted) == list(wanted.values())
    assert wanted["latex"].read_text(encoding="utf-8") == latex(two)
    assert wanted["csv"].read_bytes().decode() == spreadsheet(two)
    with pytest.raises(ValueError, match="html, md, latex, csv or claims, got 'pdf'"):
        write_files(two, {"md": tmp_path / "b.md", "pdf": tmp_path / "b.pdf"})
    assert not (tmp_path / "b.md").exists()


BAD = "<script>alert(1)</script>"
QUOTES = "\"&'"


def test_no_name_becomes_markup_in_any_format(make_run, make_claim):
    runs = []
    for name in ("one", "two"):
        run = make_run(name)
        run.manifest |= {"run_id": name, "name": f"{name} {BAD}", "command": BAD}
        signed = run.sign(BAD, make_claim())
        run.verdict_row(signed, defense=BAD, verdict="NOT_REFUTED", reason=QUOTES)
        run.row(defense=BAD, attack=QUOTES, federation=BAD, value=0.5)
        run.row(defense=BAD, attack=QUOTES, metric="none", status="failed", reason=f"| {BAD} | [x](http://y) `")
        run.row(cell_id=BAD, schema=BAD)
        runs.append(run.write())
    page, text = html(runs), markdown(runs)
    assert "<script" not in without_script(page)
    assert page.count("&lt;script&gt;alert") > 8
    assert QUOTES not in without_script(page)
    assert "&#34;&amp;&#39;" in page
    # In an indented block markdown shows everything as it stands: the command that runs it again.
    shown = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<script" not in shown
    assert "](http" not in shown.replace("\\](", "").replace("]\\(", "")
    assert all(line.startswith("%") for line in latex(runs).splitlines() if "<script" in line)
    cells = spreadsheet(runs)
    assert f'"{QUOTES.replace(chr(34), chr(34) * 2)}"' in cells


def test_the_page_of_two_runs_draws_claims_and_frontier_of_each(two):
    page = html(two)
    found = re.findall(r'<figure id="([^"]+)">', page)
    assert found == [
        *(f"run-{number}-claimed-measured" for number in (1, 2)),
        *(f"run-{number}-privacy-utility" for number in (1, 2)),
    ]
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names))
    referred = set(re.findall(r'(?:url\(#|href="#)([^")]+)', page))
    assert referred <= set(names)
    assert "Privacy and utility: monday" in page
    assert "figures of the last" not in page


def test_a_chosen_table_has_a_row_per_defense_no_epsilon_without_a_claim_and_bounds_rounded_down(
    runs, make_run, make_claim
):
    columns = ("run", "defense", "epsilon", "verdict", "epsilon_low", "detectable", "accuracy")
    other = make_run("other")
    other.row(role="audit", attack="canary", metric="epsilon_low", seed=None, verdict="NO_CLAIM")
    other.verdict_row(other.sign("mine", make_claim()), defense="mine", verdict="NOT_REFUTED", value=1.999)
    assert chosen_table([runs[0], other.write()], columns=columns).rows == (
        ("old", "none", "–", "–", "–", "–", "–"),
        ("old", "mine", "4", "NOT REFUTED", "1.25", "5.00", "0.700"),
        ("other", "none", "–", "NO CLAIM", "–", "–", "–"),
        ("other", "mine", "4", "NOT REFUTED", "1.99", "–", "–"),
    )
    with pytest.raises(ValueError, match="no run has the column 'acuracy'; known columns: accuracy"):
        chosen_table(runs, columns=["acuracy"])


def test_a_chosen_table_shows_what_every_observer_reached(make_run):
    run = make_run("two observers")
    for observer, values in {"uploads": (0.9, 0.9), "global_models": (0.6, 0.6)}.items():
        for seed, value in enumerate(values):
            run.row(role="attack", attack="loss", metric="auc", observer=observer, seed=seed, value=value)
    ((_, cell),) = chosen_table([run.write()], columns=["defense", "loss.auc"]).rows
    assert [words.split(" ")[0] for words in cell.split("; ")] == ["0.600", "0.900"]
