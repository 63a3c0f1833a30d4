"""A document of headings, paragraphs, lists and tables, and its conversion to Markdown and to PDF on A4."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import matplotlib
from fpdf import FPDF
from fpdf.enums import XPos, YPos

from ..formats.markdown import cell, table_lines
from ..tables.table import Table

EMPTY = "not measured"
"""What stands in a cell for which a run holds nothing."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of level 1 (the title) to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True, kw_only=True)
class Points:
    """A list of sentences, printed as bullet points."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Lines to be filled in by hand, each with its label in front."""

    lines: tuple[str, ...]


Block = Heading | str | Points | Table | Signature


def markdown_of(blocks: Sequence[Block]) -> str:
    """Return the text as Markdown; names and reasons from records are escaped."""
    return "\n\n".join(filter(None, map(_markdown, blocks))) + "\n"


def filled(table: Table) -> Table:
    """Return the table with ``EMPTY`` in each empty cell."""
    return replace(table, rows=tuple(tuple(text.strip() or EMPTY for text in row) for row in table.rows))


def _escaped(text: str) -> str:
    """Text without active markup; ``>`` is markup only where a text begins with it."""
    return re.sub("(?!^)&gt;", ">", cell(text))


def _markdown(block: Block) -> str:
    match block:
        case str():
            return _escaped(block)
        case Heading():
            return f"{'#' * block.level} {_escaped(block.text)}"
        case Points():
            return "\n".join(f"- {_escaped(item)}" for item in block.items)
        case Signature():
            return "\n".join(f"- {_escaped(line)}: ______________________________" for line in block.lines)
        case Table():
            if not block.rows:
                return ""
            title = block.title and f"**{_escaped(block.title)}**"
            return "\n\n".join(filter(None, (title, "\n".join(table_lines(block, _escaped)), _escaped(block.note))))


_FONT = "DejaVu"
_SIZES = {1: 17, 2: 13, 3: 11}
_BODY, _SMALL, _LINE = 9.5, 6.5, 4.6
_ROOM = 32
"""Millimetres that a heading needs below itself."""
_CELLS = 5000
"""Characters of a row, if all its cells are as long as the longest one may be."""
_LONGEST, _WORDS = 34, 40
"""Characters of a word for which a column is made wide enough, and words of a text that count."""
# Characters without a glyph would be reported once for each of them.
logging.getLogger("fpdf").setLevel(logging.ERROR)
logging.getLogger("fontTools").setLevel(logging.ERROR)


def pdf_of(blocks: Sequence[Block], *, title: str, made: datetime) -> bytes:
    """Return the document as PDF.

    Args:
        title: of the file, and at the foot of each page.
        made: the time that the file states; that of the run makes its bytes repeatable.
    """
    pdf = _Pages(title)
    pdf.set_creation_date(made)
    for block in blocks:
        _print(pdf, block)
    return bytes(pdf.output())


class _Pages(FPDF):
    def __init__(self, title: str) -> None:
        super().__init__(format="A4")
        self.foot = title
        self.set_title(title)
        self.set_lang("en")
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        # Matplotlib's own fonts hold Greek letters and mathematical signs, which PDF's own ones lack.
        self.add_font(_FONT, "", fonts / "DejaVuSans.ttf")
        self.add_font(_FONT, "B", fonts / "DejaVuSans-Bold.ttf")
        self.set_auto_page_break(auto=True, margin=18)
        self.set_font(_FONT, size=_BODY)
        self.add_page()

    def footer(self) -> None:
        self.set_y(-13)
        self.set_font(_FONT, size=_SMALL)
        self.cell(0, 5, f"{self.foot[:110]}, page {self.page_no()} of {{nb}}", align="C")


def _print(pdf: FPDF, block: Block) -> None:
    pdf.set_font(_FONT, size=_BODY)
    match block:
        case str():
            _paragraph(pdf, block)
        case Heading():
            pdf.ln(2)
            _keep_together(pdf)
            pdf.start_section(block.text[:200], level=block.level - 1, strict=False)
            pdf.set_font(_FONT, "B", _SIZES.get(block.level, _BODY))
            _paragraph(pdf, block.text, line=6)
        case Points():
            for item in block.items:
                _paragraph(pdf, f"\u2022 {item}")
        case Signature():
            for line in block.lines:
                pdf.ln(4)
                pdf.cell(62, _LINE, line)
                pdf.cell(100, _LINE, "", border="B", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
            pdf.ln(4)
        case Table():
            _print_table(pdf, block)


def _paragraph(pdf: FPDF, text: str, *, line: float = _LINE) -> None:
    pdf.multi_cell(0, line, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT, align="L")
    pdf.ln(1.2)


def _print_table(pdf: FPDF, table: Table) -> None:
    if not table.rows:
        return
    if table.title:
        _keep_together(pdf)
        pdf.set_font(_FONT, "B", _BODY)
        _paragraph(pdf, table.title)
    pdf.set_font(_FONT, size=_SMALL)
    widths = [_width(table, place) for place in range(len(table.headers))]
    # A row must fit on a page; the Markdown file has the whole text.
    most = _CELLS // len(table.headers)
    with pdf.table(col_widths=widths, line_height=3.4, text_align="LEFT", padding=0.6, repeat_headings=1) as grid:
        for cells in (table.headers, *table.rows):
            row = grid.row()
            for text in cells:
                row.cell(text if len(text) <= most else f"{text[:most]} \u2026 (cut)")
    pdf.ln(1.5)
    if table.note:
        _paragraph(pdf, table.note, line=3.4)


def _keep_together(pdf: FPDF) -> None:
    """Begin a page where too little room is left for a heading and what follows it."""
    if pdf.will_page_break(_ROOM):
        pdf.add_page()


def _width(table: Table, place: int) -> float:
    """The relative width of a column: wider for longer texts, and never too narrow for its longest word."""
    texts = [row[place] for row in (table.headers, *table.rows)]
    average = sum(map(len, texts)) / len(texts)
    longest = max(len(word) for text in texts for word in (text.split() or [""])[:_WORDS])
    return max(min(longest, _LONGEST) + 2.0, min(_LONGEST, average))
