"""The report's tables as LaTeX: booktabs, values with their intervals, the runs they come from in comments."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..reading.run_folder import RunFolder
from ..tables.run_tables import labels, tables_of
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
    # After the end of a row these two would be its arguments.
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
"""Letters of a word, of which a page holds 80: TeX stops at what is wider than 5.7 metres."""
_LONG = re.compile(rf"(\S{{{_LONGEST - 1}}})\S{{2,}}")
_BLANKS = re.compile("[\x00-\x20\x7f\x85\u2028\u2029]+")


def latex(folders: Sequence[RunFolder]) -> str:
    """A float a table, several where it is wider or longer than a page, to be ``\\input`` by a document that loads
    booktabs and array; several runs side by side.
    """
    lines = ["% Made by fedassay; the document needs \\usepackage{booktabs,array}."]
    for label, folder in zip(labels(folders), folders, strict=True):
        manifest = folder.manifest
        suite = f"{manifest.suite.get('name', '')}, version {manifest.suite.get('version', '')}"
        lines.append(_comment(f"run {label}, id {manifest.run_id}, suite {suite}: {manifest.command}"))
    return "\n".join([*lines, *(_float(part) for table in tables_of(folders) for part in parts(_shortened(table))), ""])


def escaped(text: str) -> str:
    """Text that LaTeX sets as it stands, on one line; a character that its fonts may lack is named by its number."""
    # Two of these in a row are one other sign to LaTeX.
    apart = re.sub(r"(?<=([-',]))(?=\1)", "\0", _BLANKS.sub(" ", text).strip())
    return "".join(_COMMANDS.get(character) or _set(character) for character in apart)


def _set(character: str) -> str:
    if character.isascii() or character.isspace():
        return character if character.isascii() else " "
    # Of Latin with accents every engine has the letters.
    latin = "\u00c0" <= character <= "\u017f" and character.isalpha()
    return character if latin else f"{{[}}U+{ord(character):04X}]"


def _comment(text: str) -> str:
    """One line, whatever it holds: what follows a line's end would be typeset."""
    return "% " + " ".join(re.sub(r"[^\x20-\x7e]", " ", text).split())


def _shortened(table: Table) -> Table:
    """No word longer than a name should be: the columns' widths follow from it."""

    def short(text: str) -> str:
        return _LONG.sub(r"\1…", text)

    return replace(
        table,
        title=short(table.title),
        headers=tuple(map(short, table.headers)),
        rows=tuple(tuple(map(short, row)) for row in table.rows),
        note=short(table.note),
    )


def _float(part: TablePart) -> str:
    table = part.table
    numeric = [column in table.numeric for column in range(len(table.headers))]
    align = "".join(_column(width, kind) for width, kind in zip(part.widths, numeric, strict=True))
    note = [r"\par\smallskip{\footnotesize " + escaped(table.note) + r"\par}"] if table.note else []
    return "\n".join(
        [
            "",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(table.title)}}}",
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
    """Half an em is a digit's width, whatever the document's font."""
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
    """A cell of several lines: an interval stays whole, a label may break after an underscore."""
    whole = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\u00a0"), cell)
    return escaped(whole).replace(r"\_", r"\_\allowbreak{}")
