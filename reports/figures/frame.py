"""Define a figure and its canvas: three columns, one style, and identical bytes for identical data."""

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from ...audit.output_file import check_inside, write_atomically
from ..tables.table import Table
from .letters import SMALL, broken, distinct, shortened

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
        """The panels as HTML for narrow screens; the HTML refers to the drawing in ``svg`` on the same page and does
        not repeat it.
        """
        (drawing,) = re.findall(r'<g id="([^"]+)"', self.svg)
        return "".join(f"<div>{''.join(_shown(drawing, window) for window in panel)}</div>" for panel in self.panels)

    @property
    def alone(self) -> str:
        """The drawing as a self-contained SVG file, with its title and its description."""
        start = self.svg.index(">") + 1
        words = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        return self.svg[:start] + words + self.svg[start:]

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file ``.svg`` or ``.pdf`` and return its path; raise ValueError for other endings and
        for a link out of the folder.
        """
        place = Path(path)
        if place.suffix not in SUFFIXES:
            raise ValueError(f"the path of a figure must end in .svg or .pdf, got {str(path)!r}")
        check_inside(place, place.parent)
        write_atomically(place, self.pdf() if place.suffix == ".pdf" else self.alone.encode())
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


COLUMNS, COLUMN, MARGIN, _GUTTER = 3, 300.0, 8.0, 20.0
"""The columns of every drawing: their number, their width, the space at either side of each for a mark or a number at
the end of an axis, and the distance from one to the next; in pixels.
"""
WIDTH = COLUMNS * COLUMN + (COLUMNS - 1) * _GUTTER + 2 * MARGIN
AXIS, PLOT = 58.0, 242.0
"""The space for the numbers and the name of a vertical axis, and the width that is left for a plot."""
LINE = 14.0
"""Height of a line of small text."""
_BETWEEN = 20.0
"""Distance of two plots of one panel."""
_ENTRY = 17.0
"""Height of a line of a legend."""
_HEADING = 4
"""Lines below the title of a panel at most."""


def column(place: int) -> float:
    """Return the left end of a column in pixels; ``place`` is 0, 1 or 2."""
    return MARGIN + place * (COLUMN + _GUTTER)


def window(left: float, top: float, height: float) -> Window:
    """Return the part of a drawing that a narrow screen shows: one column with its margins."""
    return Window(left - MARGIN, top, COLUMN + 2 * MARGIN, height)


def rows_of(count: int, columns: int = COLUMNS) -> int:
    """Return how many rows ``count`` panels fill."""
    return -(-count // columns)


def legend_height(count: int) -> float:
    """Return the height of a legend of ``count`` entries in pixels."""
    return _ENTRY * rows_of(count) + 12


def legend_windows(count: int) -> tuple[Window, ...]:
    """Return the parts of a legend of ``count`` entries that a narrow screen shows, one per column of the legend."""
    rows = rows_of(count)
    firsts = range(0, count, rows)
    return tuple(
        window(column(place), 0.0, _ENTRY * min(rows, count - first) + 4) for place, first in enumerate(firsts)
    )


def heading_height(lines: Iterable[Sequence[str]]) -> float:
    """Return the height of a panel's heading: its title, with the longest of these lists of ``lines`` below it."""
    return 32 + LINE * max((len(below) for below in lines), default=0)


T = TypeVar("T")
MOST = 12
"""Panels of one figure at most: four rows of three."""


def chosen(panels: Iterable[T], weights: Sequence[float], most: int = MOST) -> list[T]:
    """Return the ``most`` panels with the largest weights, in their given order; if weights are equal, earlier panels
    are preferred.
    """
    every = list(panels)
    ranked = sorted(range(len(every)), key=lambda place: -weights[place])
    return [every[place] for place in sorted(ranked[:most])]


def left_out_words(drawn: int, count: int, which: str) -> str:
    """Return a sentence for a figure's description if some panels are left out; ``which`` describes those that are
    drawn.
    """
    return "" if drawn == count else f" Drawn: the {drawn} of {count} panels {which}; all are in the table."


INK, MUTED, FAINT, RULE, PAPER = "#1d2126", "#666b73", "#9aa0a8", "#e3e1da", "#fdfcfa"
BLUE, RED, AMBER = "#1c5d99", "#b3261e", "#8a5a00"
SERIES = ("#1d2126", "#1c5d99", "#b5541c", "#2c7a5b", "#7d4a9c", "#94751a", "#a93a63", "#4b6a7c")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.5)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    (0, (1, 2.5)),
    (0, (4, 3)),
)
"""One colour, marker and dash per series, so that each of the three alone distinguishes the series."""


REFERENCE_LINE: dict[str, Any] = {"color": INK, "linewidth": 1.1, "linestyle": (0, (5, 3))}
CHANCE_LINE: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "linestyle": (0, (1, 2))}


def line_styles(lines: Iterable[tuple[str, bool]], sweep: Callable[[str], str] = str) -> dict[str, dict[str, Any]]:
    """Return the colour and dash of each attack's or defense's lines, the same in every panel. Each attack or defense
    is given by its label and by whether it is a null attack, which ignores what it observes and is drawn in grey.
    ``sweep``: maps a label to its sweep; all lines of a sweep have one colour.
    """
    styles: dict[str, dict[str, Any]] = {}
    sweeps: dict[str, set[str]] = {}
    for label, null in sorted(lines, key=lambda one: one[1]):
        sweeps.setdefault(sweep(label), set()).add(label)
        place, number = [*sweeps].index(sweep(label)), len(sweeps[sweep(label)]) - 1
        # The dash is shifted after each cycle of the colours, so that the ninth line differs from the first.
        dash = DASHES[(place + place // len(SERIES) + number) % len(DASHES)]
        colour = FAINT if null else SERIES[place % len(SERIES)]
        styles.setdefault(label, {"color": colour, "linestyle": dash, "linewidth": 1.5})
    return styles


_LOOK: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "hatch.color": FAINT,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "figure.facecolor": "none",
    "svg.hashsalt": "fedassay",
}
_SEGMENT = re.compile(r"([MLQCz])([^MLQCz]*)")
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


Legend = Mapping[str, Mapping[str, Any]]
"""Label -> style of its line or marker; of a hatched patch, if the style names a hatch."""


class Sheet:
    """A drawing of ``WIDTH`` by ``height`` CSS pixels that depends neither on pyplot nor on the user's matplotlib
    settings.

    Use it as a context manager: the style applies inside it, and matplotlib's global settings are restored afterwards.
    ``panels``: the parts of the drawing that a narrow screen shows one below the other. Together they must show all of
    it, and none may be wider than a column with its margins.
    """

    def __init__(self, key: str, height: float) -> None:
        self.key, self.height = key, height
        self.panels: list[tuple[Window, ...]] = []
        self._look = matplotlib.rc_context()

    def __enter__(self) -> "Sheet":
        self._look.__enter__()
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, _LOOK | {"svg.hashsalt": self.key}))
        self.drawing = Drawing(figsize=(WIDTH / 72, self.height / 72), dpi=72)
        FigureCanvasSVG(self.drawing)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._look.__exit__(*exception)

    def cells(self, count: int, top: float, height: float) -> Iterator[tuple[float, float]]:
        """Yield the upper left corner of each of ``count`` panels, three in a row, and record the panel."""
        for place in range(count):
            row, across = divmod(place, COLUMNS)
            corner = (column(across), top + row * height)
            self.panels.append((window(*corner, height),))
            yield corner

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes to the drawing, at a place in pixels from its upper left corner."""
        bottom = self.height - top - height
        return self.drawing.add_axes((left / WIDTH, bottom / self.height, width / WIDTH, height / self.height))

    def text(self, left: float, top: float, words: str, **style: Any) -> None:
        """Add text with its upper left corner at this pixel, unless ``style`` aligns it otherwise."""
        aligned = {"ha": "left", "va": "top"} | style
        self.drawing.text(left / WIDTH, 1 - top / self.height, words, **aligned)

    def heading(self, left: float, top: float, title: str, below: Sequence[str]) -> None:
        """Print a panel's title in bold and the lines ``below`` it."""
        self.text(left, top + 4, shortened(title, 11.5, COLUMN, bold=True), size=11.5, weight="bold")
        for number, line in enumerate(below):
            self.text(left, top + 22 + LINE * number, line, size=SMALL, color=MUTED)

    def legend(self, styles: Legend) -> None:
        """Add a legend along the upper edge of the drawing, in three columns of `legend_height`."""
        rows = rows_of(len(styles))
        short = distinct([*styles], SMALL, COLUMN - 36)
        handles: list[Artist] = [
            Patch(label=short[label], **style) if "hatch" in style else Line2D([], [], label=short[label], **style)
            for label, style in styles.items()
        ]
        self.panels.append(legend_windows(len(handles)))
        for place in range(rows_of(len(handles), rows)):
            self.drawing.legend(
                handles=handles[place * rows : (place + 1) * rows],
                loc="upper left",
                bbox_to_anchor=(column(place) / WIDTH - 0.003, 1.0),
                borderaxespad=0.0,
                borderpad=0.2,
                handletextpad=0.5,
            )

    def figure(self, *, title: str, description: str, table: Table) -> Figure:
        """Return the finished drawing as a figure."""
        return Figure(
            key=self.key,
            title=title,
            description=description,
            svg=self.svg(),
            pdf=self.pdf,
            table=table,
            panels=tuple(self.panels),
        )

    def svg(self) -> str:
        """Return the drawing as one <svg> element without prologue, metadata or outside references; numbers are rounded
        to 1/100 pixel.
        """
        buffer = io.StringIO()
        with warnings.catch_warnings():
            # The font for measuring lacks some characters, such as emoji. The reader's own font prints them.
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            self.drawing.savefig(buffer, format="svg", metadata=_NO_METADATA)
        # The XML prologue before the element would be invalid inside a page.
        text = buffer.getvalue()
        return _tidied(text[text.index("<svg") :], self.key, self.height)

    def pdf(self) -> bytes:
        """Return the drawing as a PDF file with embedded fonts; the same data give the same bytes."""
        buffer = io.BytesIO()
        # Type 42 fonts: publishers refuse matplotlib's default, Type 3.
        with matplotlib.rc_context(cast(Any, _LOOK | {"pdf.fonttype": 42})), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            self.drawing.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Producer": None})
        return buffer.getvalue()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel of a figure.

    Args:
        draw: fills the panel's axes, which it is given from the upper to the lower one.
        title: of its heading; empty for a panel without one.
        below: the words of the heading below the title.
        verdict: words and colour of a line directly below the title.
        room: pixels to the right of the plot, for labels.
    """

    draw: Callable[..., None]
    title: str = ""
    below: str = ""
    verdict: tuple[str, str] | None = None
    room: float = 0.0

    @property
    def lines(self) -> list[str]:
        """The lines of text below the panel's title; the verdict's line is left free."""
        return [*([""] if self.verdict else []), *broken(self.below, SMALL, COLUMN, _HEADING)]

    def heading(self, sheet: Sheet, left: float, top: float) -> None:
        if self.title:
            sheet.heading(left, top, self.title, self.lines)
        if self.verdict:
            words, colour = self.verdict
            sheet.text(left, top + 22, words, size=SMALL, weight="bold", color=colour)


def panel_figure(
    key: str,
    panels: Sequence[Panel],
    *,
    plots: Sequence[float],
    foot: float,
    head: float | None = None,
    legend: Legend = MappingProxyType({}),
    **about: Any,
) -> Figure:
    """Draw panels of equal height, three in a row, below a legend.

    Args:
        plots: heights of the plots of a panel in pixels, from the upper to the lower one.
        foot: pixels below the lowest plot, for its horizontal axis.
        head: pixels above the upper plot; by default as many as the highest heading needs.
        legend: the entries of the legend.
        about: title, description and table of the figure.
    """
    top = legend_height(len(legend)) if legend else 0.0
    head = heading_height(panel.lines for panel in panels) if head is None else head
    height = head + sum(plots) + _BETWEEN * (len(plots) - 1) + foot
    with Sheet(key, top + height * rows_of(len(panels))) as sheet:
        if legend:
            sheet.legend(legend)
        for (left, above), panel in zip(sheet.cells(len(panels), top, height), panels, strict=True):
            panel.heading(sheet, left, above)
            tops = [above + head + sum(plots[:place]) + _BETWEEN * place for place in range(len(plots))]
            width = COLUMN - AXIS - panel.room
            panel.draw(*(sheet.axes(left + AXIS, at, width, plot) for at, plot in zip(tops, plots, strict=True)))
        return sheet.figure(**about)


def titled(title: str, federation: str, many: bool) -> str:
    """Return a figure's title; it names the federation if there are several."""
    return f"{title} ({federation})" if many else title


def _tidied(svg: str, key: str, height: float) -> str:
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    # matplotlib's style rule would apply to the whole page; the root element of the drawing carries it instead.
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href").replace("<defs></defs>", "")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"<[^>]+>", _tidied_tag, body)
    body = re.sub(r">\s+<", "><", body)
    # A key may hold any letters, those of markup too.
    name = hashlib.sha256(key.encode()).hexdigest()[:12]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}">'
        f'<g id="drawing-{name}" style="stroke-linejoin:round;stroke-linecap:butt;font-family:system-ui,sans-serif">'
    )
    return f"{head}{body.strip()}</g></svg>"


def _tidied_tag(found: re.Match[str]) -> str:
    # Hundredths of a pixel are invisible, and further digits would double the size of the page.
    tag = re.sub(r"(?<=\.\d\d)\d{3,}", "", found[0])
    if "<text" in tag:
        tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
        # Text is measured with matplotlib's own font and displayed in the reader's, which the group names once.
        tag = re.sub(r"font-family: 'DejaVu Sans'[^;\"]*; ", "", tag)
    if tag.startswith("<image"):
        tag = re.sub(r' id="[^"]*"', "", tag).replace("\n", "")
        return re.sub(r'(?<=base64,)[^"]+', lambda png: _lighter(png[0]), tag)
    tag = re.sub(r"\s*\n\s*", " ", tag)
    return re.sub(r'(?<= d=")[^"]+', lambda path: shorter(path[0]), tag) if tag.startswith("<path") else tag


def shorter(path: str) -> str:
    """Return the same SVG path in fewer characters: a line along an axis needs one number, not two."""
    words: list[str] = []
    x = y = ""
    for command, numbers in _SEGMENT.findall(path):
        values = numbers.split()
        if command == "L" and len(values) == 2 and x == values[0]:
            words.append(f"V{values[1]}")
        elif command == "L" and len(values) == 2 and y == values[1]:
            words.append(f"H{values[0]}")
        else:
            words.append(command + " ".join(values))
        x, y = values[-2:] if len(values) > 1 else ("", "")
    return "".join(words)


def _lighter(png: str) -> str:
    """The PNG in base64; a purely grey image is stored with one channel, a third of the size."""
    with Image.open(io.BytesIO(base64.b64decode(png))) as stored:
        bands = stored.convert("RGBA").split()
        grey = bands[0].tobytes() == bands[1].tobytes() == bands[2].tobytes() and bands[3].getextrema() == (255, 255)
    if not grey:
        return png
    buffer = io.BytesIO()
    bands[0].save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
