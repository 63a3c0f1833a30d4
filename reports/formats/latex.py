"""Print the tables of a report as LaTeX with booktabs, split into pieces that fit on a printed page.

Widths are counted in letters of a small font (7 pt), of which a page of LaTeX's article class holds about eighty. A
wide table is split between columns, and the columns that identify a row are repeated in each part; a long table is
split between rows. Comments name the runs that the tables come from.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..reading.run_folder import RunFolder
from ..tables.several_runs import run_labels, tables_of
from ..tables.table import Table

LETTERS, LINES = 80, 46
"""Letters of one line and lines of one table on a page."""
_GAP = 1.5
_ABOUT, _TEXT, _NUMBER, _LEAST = 24, 34, 15, 10
"""Widest columns before their cells are broken into lines: those that identify a row, other texts, numbers. The last
value is the width below which no column is narrowed.
"""


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """A piece of a table. ``widths`` has one entry per column: the number of letters per line if the column's entries
    are broken into lines, otherwise None.
    """

    table: Table
    widths: tuple[int | None, ...]


def parts(table: Table) -> list[TablePart]:
    """Split a table into pieces that together hold all entries, by columns first and then by rows."""
    sizes = _fitted([_size(table, column) for column in range(len(table.headers))], table.about)
    pieces = [
        (columns, rows) for columns in _column_groups(sizes, table.about) for rows in _row_groups(table, columns, sizes)
    ]
    return [
        TablePart(
            table=_piece(table, columns, rows, number, len(pieces)), widths=tuple(sizes[i].broken for i in columns)
        )
        for number, (columns, rows) in enumerate(pieces, start=1)
    ]


@dataclass(frozen=True, kw_only=True)
class _ColumnSize:
    """Width of a column in letters. ``letters``: as printed; ``natural``: longest cell; ``least``: longest word."""

    letters: int
    natural: int
    least: int

    @property
    def broken(self) -> int | None:
        """Return the number of letters per line at which the column's entries must be broken into lines; None if the
        longest entry fits on one line.
        """
        return self.letters if self.letters < self.natural else None


def _size(table: Table, column: int) -> _ColumnSize:
    texts = [table.headers[column], *(row[column] for row in table.rows)]
    natural, word = max(map(_letters, texts)), max(_letters(word) for text in texts for word in unbroken_words(text))
    most = _ABOUT if column < table.about else _NUMBER if column in table.numeric else _TEXT
    least = min(natural, max(word, _LEAST))
    return _ColumnSize(letters=max(least, min(natural, most)), natural=natural, least=least)


def _fitted(sizes: list[_ColumnSize], about: int) -> list[_ColumnSize]:
    """Narrows all columns in proportion if they then fit on one page; else only the columns that identify a row."""
    room = LETTERS - _GAP * len(sizes)
    excess = sum(size.letters for size in sizes) - room
    if excess <= 0:
        return sizes
    slack = [size.letters - size.least for size in sizes]
    # Even the narrowest columns do not fit: the table is split, with the repeated columns as narrow as possible.
    if excess > sum(slack):
        head = [replace(size, letters=size.least) for size in sizes[:about]]
        left = math.floor(LETTERS - sum(size.letters + _GAP for size in head) - _GAP)
        return [*head, *(replace(size, letters=max(size.least, min(size.letters, left))) for size in sizes[about:])]
    share = excess / sum(slack)
    return [
        replace(size, letters=size.letters - math.ceil(share * more)) for size, more in zip(sizes, slack, strict=True)
    ]


def _letters(text: str) -> int:
    """Width of the text in digits; capitals are wider than digits."""
    return math.ceil(len(text) + 0.4 * sum(letter.isupper() for letter in text))


def unbroken_words(text: str) -> list[str]:
    """Split a table entry's text at the places where a line may break: within a label after underscores, but never
    within an interval.
    """
    return re.findall(r"\[[^\]]*\]|[^\s_\[]+_*|\S", text) or [""]


def _column_groups(sizes: Sequence[_ColumnSize], about: int) -> list[list[int]]:
    head = list(range(min(about, len(sizes))))
    room = LETTERS - sum(sizes[i].letters + _GAP for i in head)
    groups: list[list[int]] = []
    left = 0.0
    for column in range(len(head), len(sizes)):
        taken = sizes[column].letters + _GAP
        # A column wider than a page still gets a group of its own: no cell may be lost.
        if not groups or taken > left:
            groups.append([])
            left = room
        groups[-1].append(column)
        left -= taken
    return [[*head, *group] for group in groups or [[]]]


def _row_groups(
    table: Table, columns: Sequence[int], sizes: Sequence[_ColumnSize]
) -> Iterator[tuple[tuple[str, ...], ...]]:
    group: list[tuple[str, ...]] = []
    lines = 0
    for row in table.rows:
        taken = max(_lines(row[i], sizes[i].letters) for i in columns)
        if group and lines + taken > LINES:
            yield tuple(group)
            group, lines = [], 0
        group.append(tuple(row[i] for i in columns))
        lines += taken
    yield tuple(group)


def _lines(text: str, letters: int) -> int:
    """Number of lines of a cell that is filled word by word."""
    lines, left = 1, letters
    for word in unbroken_words(text):
        if len(word) > left:
            lines, left = lines + 1, letters
        left -= len(word) + 1
    return lines


def _piece(table: Table, columns: Sequence[int], rows: tuple[tuple[str, ...], ...], number: int, count: int) -> Table:
    return replace(
        table,
        title=table.title if count == 1 else f"{table.title} ({number} of {count})",
        headers=tuple(table.headers[i] for i in columns),
        rows=rows,
        numeric=frozenset(place for place, i in enumerate(columns) if i in table.numeric),
        # Under the last part only, where a note of the whole table stands as well.
        note=table.note if number == count else "",
    )


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
