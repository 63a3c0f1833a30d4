"""Define a figure: a drawing with its title, its description and a table of the same data."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..tables.table import Table

SUFFIXES = (".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with its title, description and data table. ``svg`` holds one <svg> element without outside references,
    and ``key`` an HTML id that is unique on the page.
    """

    key: str
    title: str
    description: str
    svg: str
    table: Table
    pdf: Callable[[], bytes] = field(repr=False, compare=False)
    """Draws the same figure as the bytes of a PDF file; called only where one is wanted, because it takes time."""

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file ``.svg`` or ``.pdf`` and return its path; raise ValueError for other endings."""
        place = Path(path)
        if place.suffix not in SUFFIXES:
            raise ValueError(f"the path of a figure must end in .svg or .pdf, got {str(path)!r}")
        place.write_bytes(self.pdf() if place.suffix == ".pdf" else self.svg.encode())
        return place

    def _repr_html_(self) -> str:
        # A light ground, because the drawing's ink is dark and a notebook may be dark as well.
        return f'<div style="background:#fdfcfa;padding:8px;max-width:960px">{self.svg}</div>'

    def of_run(self, number: int, label: str) -> "Figure":
        """Return the figure for a page about several runs: its title names the run, and its ids differ from other runs'
        ids.
        """
        mark = f"run-{number}-"
        svg = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', mark, self.svg)
        return replace(self, key=mark + self.key, title=f"{self.title}: {label}", svg=svg)
