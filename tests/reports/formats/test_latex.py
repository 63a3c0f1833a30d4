"""The tables as LaTeX, cut to fit a page.

A reader of our own undoes the escapes: what it gives back must be the table's text.
"""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from fedassay.reports.formats.latex import _COMMANDS, LETTERS, LINES, escaped, latex, parts, unbroken_words
from fedassay.reports.reading.printable import printable_record
from fedassay.reports.tables.sections import run_tables
from fedassay.reports.tables.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st


def table_of(rows, headers, about=1):
    return Table(title="t", headers=headers, rows=rows, about=about, note="n")


def test_a_table_that_fits_is_one_part_as_it_is():
    table = table_of((("a", "1"), ("b", "2")), ("x", "y"))
    (part,) = parts(table)
    assert part.table == table
    assert part.widths == (None, None)


def test_wide_tables_are_cut_between_columns_and_every_part_states_what_its_rows_are_about():
    headers = ("attack", "metric", *(f"defense{place:013d}" for place in range(7)))
    rows = ((("loss", "auc", *[f"{place}" for place in range(7)])),)
    found = [part.table for part in parts(table_of(rows, headers, about=2))]
    assert len(found) > 1
    assert [table.title for table in found] == [f"t ({n} of {len(found)})" for n in range(1, len(found) + 1)]
    assert all(table.rows[0][:2] == ("loss", "auc") for table in found)
    assert [cell for table in found for cell in table.rows[0][2:]] == [f"{place}" for place in range(7)]
    assert [table.note for table in found] == [""] * (len(found) - 1) + ["n"]


def test_long_tables_are_cut_between_rows():
    rows = tuple((f"{row}", "x") for row in range(2 * LINES + 1))
    found = [part.table.rows for part in parts(table_of(rows, ("a", "b")))]
    assert [len(part) for part in found] == [LINES, LINES, 1]
    assert sum(found, ()) == rows


def test_columns_are_narrowed_before_a_table_is_cut():
    reason = "no noise law and no known rest for what this observer sees of it all"
    (part,) = parts(table_of(((reason, reason, reason),), ("a", "b", "c")))
    assert None not in part.widths
    assert sum(part.widths) < LETTERS


def test_an_interval_is_one_word_and_a_label_breaks_after_its_underscores():
    assert unbroken_words("0.6 [0.1, 0.9]") == ["0.6", "[0.1, 0.9]"]
    assert unbroken_words("noise_halved x") == ["noise_", "halved", "x"]
    assert unbroken_words("") == [""]


@given(
    st.lists(st.lists(st.text("ab_ [],", max_size=60), min_size=5, max_size=5), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_the_parts_hold_every_cell_once(cells, about):
    table = table_of(tuple(tuple(row) for row in cells), tuple("vwxyz"), about)
    found = parts(table)
    columns: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for part in found:
        columns.setdefault(part.table.headers[about:], []).extend(part.table.rows)
    assert [header for headers in columns for header in headers] == list("vwxyz"[about:])
    for place, row in enumerate(table.rows):
        assert [cell for rows in columns.values() for cell in rows[place][about:]] == list(row[about:])
        assert all(rows[place][:about] == row[:about] for rows in columns.values())


SPECIAL = set("\\{}$&#%_^~")


def typeset(text):
    """What is printed: our commands undone, the longest first."""
    undo = {command: sign for sign, command in _COMMANDS.items() if command not in ("''", "'", "`", "~")}
    undo |= {"{}": "", r"\_": "_", r"\allowbreak{}": ""}
    pattern = "|".join(re.escape(command) for command in sorted(undo, key=len, reverse=True))
    return re.sub(pattern, lambda found: undo[found.group()].replace("\0", ""), text)


def rows_of(text, title):
    """Cells of the table of this caption, still escaped."""
    body = text[text.index(rf"\caption{{{title}}}") :].split(r"\midrule")[1].split(r"\bottomrule")[0]
    return [line.removesuffix(r" \\").split(" & ") for line in body.strip().splitlines()]


def test_each_part_of_a_table_has_its_rules_its_columns_and_its_rows(quick_folder):
    text = latex([quick_folder])
    tables = [part.table for table in run_tables(quick_folder) for part in parts(table)]
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(tables)
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(f"\\{rule}\n") == len(tables)
    for table in tables:
        found = rows_of(text, escaped(table.title))
        assert [len(row) for row in found] == [len(table.headers)] * len(table.rows)
        # An interval in a broken cell is held together by spaces that do not break.
        printed = [[typeset(cell).replace("~", " ") for cell in row] for row in found]
        assert printed == [list(row) for row in table.rows]


def test_the_run_stands_in_a_comment_on_one_line(run_maker):
    run_maker.manifest["command"] = "fedassay run x\n\\input{secret}\r\u2028\\end"
    run_maker.row(value=0.5)
    text = latex([run_maker.write()])
    assert re.search(r"^% run run, id r{12}, suite quick, version 1: fedassay run x /input\{secret\} /end$", text, re.M)
    assert all(line.startswith("%") for line in text.splitlines() if "input" in line or "usepackage" in line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 5 % of {x}", r"a\_b \& 5 \% of \{x\}"),
        ("\\input{x}", r"\textbackslash{}input\{x\}"),
        ("$a^b~c#d", r"\$a\textasciicircum{}b\textasciitilde{}c\#d"),
        ("<script>", r"\textless{}script\textgreater{}"),
        ("\"&'", r"''\&'"),
        ("--x ''y'' a---b", r"-{}-x '{}'y'{}' a-{}-{}-b"),
        ("[1]*", "{[}1]{*}"),
        ("ε ≥ 4, δ ↑ −1", r"$\varepsilon$ $\geq$ 4, $\delta$ $\uparrow$ $-$1"),
        ("1\u202f000\u2003x\u2028y", r"1\,000 x y"),
        ("é 漢", "é {[}U+6F22]"),
        ("a\nb\x00c\x1b", "a b c"),
    ],
)
def test_what_latex_would_read_is_escaped(text, expected):
    assert escaped(text) == expected


@pytest.mark.simulations
@given(st.text())
def test_no_text_leaves_its_cell(text):
    bare = escaped(text)
    for command in sorted(filter(None, _COMMANDS.values()), key=len, reverse=True):
        bare = bare.replace(command, "") if len(command) > 1 else bare
    assert not SPECIAL - {"~"} & set(bare)
    assert "\n" not in bare
    groups = re.sub(r"\\[{}]", "", escaped(text))
    assert groups.count("{") == groups.count("}")


WIDE = Table(
    title="Wide & long",
    headers=("defense", "metric", *(f"a_very_long_name_of_defense_{place}" for place in range(9)), "n"),
    rows=tuple(
        (f"attack_{row}", "AUC (↑ leaks more) ε ≤ 4 − ∞", *["0.650 [0.635, 0.665]"] * 9, str(row)) for row in range(60)
    ),
    numeric=frozenset(range(2, 12)),
    note="漢 100 % of what_is <seen>.",
    about=2,
)


def test_a_word_that_no_page_holds_ends_in_an_ellipsis(run_maker):
    """TeX stops at a box of 16383 pt; a name that is 120 letters long stays whole."""
    run_maker.row(value=0.5, defense="x" * 120)
    run_maker.row(value=0.6, defense=f"one {'y' * 3000}")
    text = latex([run_maker.write()])
    assert re.search(r"(?<!x)x{120}(?!x)", text)
    assert re.search(rf"(?<!y)y{{119}}{re.escape(escaped('…'))}", text)
    assert "y" * 120 not in text
    assert max(map(float, re.findall(r"p\{([\d.]+)em\}", text)), default=0) <= 100


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_pdflatex_sets_every_table_within_the_margins(quick_folder, tmp_path, monkeypatch):
    """One engine, the article class: no error, nothing wider than the text, nothing longer than the page."""
    monkeypatch.setattr("fedassay.reports.formats.latex.tables_of", lambda folders: [*run_tables(folders[0]), WIDE])
    (tmp_path / "tables.tex").write_text(latex([quick_folder]), encoding="utf-8")
    document = r"\documentclass{article}\usepackage{booktabs,array}\begin{document}\input{tables.tex}\end{document}"
    (tmp_path / "main.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "too large" not in done.stdout
    assert "Missing character" not in (tmp_path / "main.log").read_text(errors="replace")


HOSTILE = st.lists(
    st.sampled_from(
        [
            *(
                r"\input{x}",
                r"\write18{ls}",
                r"\immediate\write18",
                "^^5cinput",
                "^^M\\input",
                "%",
                "\n",
                "\r",
                "\x00",
                "\x85",
            ),
            *("\u2028", "\ud800", "{", "}", "$", "&", "#", "\\\\", "\\", " ", "a", "_", "|", "[", "*", "ε"),
        ]
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)
OWN = {
    *(
        "begin",
        "end",
        "centering",
        "caption",
        "scriptsize",
        "setlength",
        "tabcolsep",
        "toprule",
        "midrule",
        "bottomrule",
    ),
    *("par", "smallskip", "footnotesize", "raggedleft", "raggedright", "arraybackslash", "allowbreak", "arabic"),
    *(command[1:].rstrip("{}") for command in _COMMANDS.values() if re.match(r"\\[a-z]", command)),
    *("varepsilon", "delta", "mu", "sigma", "geq", "leq", "uparrow", "downarrow", "rightarrow", "times", "pm", "infty"),
}


def active_commands(text):
    """Names of the commands that TeX carries out: it knows no escape of a backslash, and skips comments."""
    lines = (re.sub(r"(?<!\\)((?:\\\\)*)%.*", r"\1", line) for line in text.splitlines())
    return {found for line in lines for found in re.findall(r"\\([a-zA-Z@]+)", line.replace("\\\\", ""))}


@pytest.mark.simulations
@given(st.lists(HOSTILE, min_size=8, max_size=8))
@settings(max_examples=60)
def test_no_command_of_a_name_is_carried_out(small_run, names):
    defense, attack, federation, metric, reason, command, suite, run_id = names
    told = {"defense": defense, "attack": attack, "federation": federation, "metric": metric, "reason": reason}
    manifest = small_run.manifest.model_copy(
        update={"command": command, "run_id": run_id, "suite": small_run.manifest.suite | {"name": suite}}
    )
    records = tuple(printable_record(record.model_copy(update=told)) for record in small_run.records)
    text = latex([replace(small_run, records=records, manifest=manifest)])
    assert active_commands(text) <= OWN
    comments = [line for line in text.splitlines() if line.startswith("% run")]
    assert not any("\\" in line for line in comments), "a comment may be broken into lines on its way"
    table = Table(title=defense, headers=(attack, "n"), rows=((metric, reason),), note=command)
    assert active_commands(latex([small_run], only=table)) <= OWN
