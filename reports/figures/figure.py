"""Define a figure: a drawing with its title, its description and a table of the same data."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from ..tables.table import Table

SUFFIXES = (".svg", ".pdf")


class Window(NamedTuple):
    """A rectangle of a drawing, in pixels from its upper left corner."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with its title, description and data table. ``svg`` holds one <svg> element without outside references,
    whose contents are one group with an id, and ``key`` an HTML id that is unique on the page.

    ``panels``: the windows of the drawing that a narrow screen shows one below the other; the windows of one panel
    belong together.
    """

    key: str
    title: str
    description: str
    svg: str
    table: Table
    panels: tuple[tuple[Window, ...], ...]
    pdf: Callable[[], bytes] = field(repr=False, compare=False)
    """Draws the same figure as the bytes of a PDF file; called only where one is wanted, because it takes time."""

    @property
    def narrow(self) -> str:
        """The panels as HTML, which refers to the drawing in ``svg`` on the same page and repeats none of it."""
        (drawing,) = re.findall(r'<g id="([^"]+)"', self.svg)
        return "".join(f"<div>{''.join(_shown(drawing, window) for window in panel)}</div>" for panel in self.panels)

    @property
    def alone(self) -> str:
        """The drawing as an SVG file: with its title and its description."""
        start = self.svg.index(">") + 1
        words = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        return self.svg[:start] + words + self.svg[start:]

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file ``.svg`` or ``.pdf`` and return its path; raise ValueError for other endings."""
        place = Path(path)
        if place.suffix not in SUFFIXES:
            raise ValueError(f"the path of a figure must end in .svg or .pdf, got {str(path)!r}")
        place.write_bytes(self.pdf() if place.suffix == ".pdf" else self.alone.encode())
        return place

    def _repr_html_(self) -> str:
        # A light ground, because the drawing's ink is dark and a notebook may be dark as well.
        return f'<div style="background:#fdfcfa;padding:8px;max-width:960px">{self.alone}</div>'

    def of_run(self, number: int, label: str) -> "Figure":
        """Return the figure for a page about several runs: its title names the run, and its ids differ from other runs'
        ids.
        """
        mark = f"run-{number}-"
        svg = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', mark, self.svg)
        return replace(self, key=mark + self.key, title=f"{self.title}: {label}", svg=svg)


def _shown(drawing: str, window: Window) -> str:
    box = " ".join(f"{number:g}" for number in window)
    return f'<svg viewBox="{box}"><use href="#{drawing}"/></svg>'
