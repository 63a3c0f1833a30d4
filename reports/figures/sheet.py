"""Give every figure the same canvas and style, and identical bytes for identical data."""

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing
from PIL import Image

from ..tables.table import Table
from .columns import COLUMN, COLUMNS, LINE, SMALL, WIDTH, column, legend_windows, rows_of, window
from .figure import Figure, Window
from .letters import distinct, shortened

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


def line_styles(lines: Iterable[tuple[str, bool]]) -> dict[str, dict[str, Any]]:
    """Return the colour and dash of the lines of each attack or defense, the same in every panel. Each is given by its
    label and by whether it is a null attack, which ignores what it observes and is grey.
    """
    styles: dict[str, dict[str, Any]] = {}
    for label, null in sorted(lines, key=lambda one: one[1]):
        place = len(styles)
        # The dash is shifted after each cycle of the colours, so that the ninth line differs from the first.
        dash = DASHES[(place + place // len(SERIES)) % len(DASHES)]
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
        """Print a panel's title in bold and the lines ``below`` it, which `heading_lines` has broken."""
        self.text(left, top + 4, shortened(title, 11.5, COLUMN, bold=True), size=11.5, weight="bold")
        for number, line in enumerate(below):
            self.text(left, top + 22 + LINE * number, line, size=SMALL, color=MUTED)

    def legend(self, handles: Sequence[Artist]) -> None:
        """Add a legend along the upper edge of the drawing, in three columns of `legend_height`."""
        rows = rows_of(len(handles))
        short = distinct([str(handle.get_label()) for handle in handles], SMALL, COLUMN - 36)
        for handle in handles:
            handle.set_label(short[str(handle.get_label())])
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
        """Return what is drawn as a figure."""
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
