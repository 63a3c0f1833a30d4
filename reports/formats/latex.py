"""Print the tables of a report as LaTeX with booktabs, and name the runs that they come from in comments."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..overviews.several_runs import run_labels, tables_of
from ..reading.run_folder import RunFolder
from ..tables.table import Table
from .fitting import TablePart, parts

_COMMANDS = {
    "\0": "{}",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    # Directly after the end of a row LaTeX would read these two as arguments of the line break.
    "[": "{[}",
    "*": "{*}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "μ": r"$\mu$",
    "σ": r"$\sigma$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "\u00a0": "~",
    "\u202f": r"\,",
}
_LONGEST = 120
"""Longest word in letters; a line holds 80. TeX stops with an error at a width of more than 5.7 metres."""
_LONG = re.compile(rf"(\S{{{_LONGEST - 1}}})\S{{2,}}")
_BLANKS = re.compile("[\x00-\x20\x7f\x85\u2028\u2029]+")


def latex(folders: Sequence[RunFolder], only: Table | None = None, label: str = "") -> str:
    """Return LaTeX code with one floating environment per table, or several if a table is wider or longer than a page;
    several runs share their tables.

    ``only``: the one table to print in place of all; ``label``: its name for ``\\ref``, of letters, digits and
    ``:_-``.

    To be read with ``\\input`` by a document that loads booktabs and array.
    """
    lines = ["% Made by fedassay; the document needs \\usepackage{booktabs,array}."]
    for run, folder in zip(run_labels(folders), folders, strict=True):
        manifest = folder.manifest
        suite = f"{manifest.suite.get('name', '')}, version {manifest.suite.get('version', '')}"
        lines.append(_comment(f"run {run}, id {manifest.run_id}, suite {suite}: {manifest.command}"))
    if label and not re.fullmatch(r"[A-Za-z0-9:_-]+", label):
        raise ValueError(f"label (the name for \\ref) must consist of letters, digits and ':_-', got {label!r}")
    tables = tables_of(folders) if only is None else [only]
    pieces = [part for table in tables for part in parts(_shortened(table))]
    # A label stands once: of a table that is wider or longer than a page the first piece has it.
    floats = [_float(part, label if number == 0 else "") for number, part in enumerate(pieces)]
    return "\n".join([*lines, *floats, ""])


def escaped(text: str) -> str:
    """Return text that LaTeX prints unchanged on one line; a character that its fonts may lack is replaced by its
    number.
    """
    # LaTeX joins two of these in a row into another character, such as a dash.
    apart = re.sub(r"(?<=([-',]))(?=\1)", "\0", _BLANKS.sub(" ", text).strip())
    return "".join(_COMMANDS.get(character) or _set(character) for character in apart)


def _set(character: str) -> str:
    if character.isascii() or character.isspace():
        return character if character.isascii() else " "
    # Every engine has the accented Latin letters.
    latin = "\u00c0" <= character <= "\u017f" and character.isalpha()
    return character if latin else f"{{[}}U+{ord(character):04X}]"


def _comment(text: str) -> str:
    """A comment on one line, because LaTeX would typeset what follows a line end.

    A backslash becomes a slash, because an editor may break a long comment, and what follows would be a command.
    """
    return "% " + " ".join(re.sub(r"[^\x20-\x7e]", " ", text.replace("\\", "/")).split())


def _shortened(table: Table) -> Table:
    """The table with very long words cut, because the widths of columns follow from their longest words."""

    def short(text: str) -> str:
        return _LONG.sub(r"\1…", text)

    return replace(
        table,
        title=short(table.title),
        headers=tuple(map(short, table.headers)),
        rows=tuple(tuple(map(short, row)) for row in table.rows),
        note=short(table.note),
    )


def _float(part: TablePart, label: str = "") -> str:
    table = part.table
    numeric = [column in table.numeric for column in range(len(table.headers))]
    align = "".join(_column(width, kind) for width, kind in zip(part.widths, numeric, strict=True))
    note = [r"\par\smallskip{\footnotesize " + escaped(table.note) + r"\par}"] if table.note else []
    return "\n".join(
        [
            "",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(table.title)}}}" + (rf"\label{{{label}}}" if label else ""),
            r"\scriptsize\setlength{\tabcolsep}{3pt}%",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            _row(table.headers, part.widths),
            r"\midrule",
            *(_row(row, part.widths) for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *note,
            r"\end{table}",
        ]
    )


def _column(letters: int | None, numeric: bool) -> str:
    """The column's alignment. A digit is half an em wide in every font, so the width is given in em."""
    if letters is None:
        return "r" if numeric else "l"
    ragged = r"\raggedleft" if numeric else r"\raggedright"
    return rf">{{{ragged}\arraybackslash}}p{{{letters / 2:g}em}}"


def _row(cells: Sequence[str], widths: Sequence[int | None]) -> str:
    return (
        " & ".join(escaped(cell) if width is None else _broken(cell) for cell, width in zip(cells, widths, strict=True))
        + r" \\"
    )


def _broken(cell: str) -> str:
    """A cell of several lines: an interval is not broken, a label may break after an underscore."""
    # A line break inside an interval would make two numbers of it.
    whole = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\u00a0"), cell)
    return escaped(whole).replace(r"\_", r"\_\allowbreak{}")
