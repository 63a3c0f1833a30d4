"""Give every figure the same canvas and style, and identical bytes for identical data."""

import base64
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing
from PIL import Image

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


def attack_styles(attacks: Iterable[tuple[str, bool]]) -> dict[str, dict[str, Any]]:
    """Return each attack's colour and dash, the same in every panel; null attacks, which ignore what they observe, are
    grey. An attack is given by its label and by whether it is a null attack.
    """
    styles: dict[str, dict[str, Any]] = {}
    for label, null in sorted(attacks, key=lambda one: one[1]):
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
    "legend.fontsize": 10.5,
    "figure.facecolor": "none",
    "svg.hashsalt": "fedassay",
}
_SEGMENT = re.compile(r"([MLQCz])([^MLQCz]*)")
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


class Sheet:
    """A drawing of ``width`` by ``height`` CSS pixels that depends neither on pyplot nor on the user's matplotlib
    settings.

    Use it as a context manager: the style applies inside it, and matplotlib's global settings are restored afterwards.
    """

    def __init__(self, key: str, width: float, height: float) -> None:
        self.key, self.width, self.height = key, width, height
        self._look = matplotlib.rc_context()

    def __enter__(self) -> "Sheet":
        self._look.__enter__()
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, _LOOK | {"svg.hashsalt": self.key}))
        self.drawing = Drawing(figsize=(self.width / 72, self.height / 72), dpi=72)
        FigureCanvasSVG(self.drawing)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._look.__exit__(*exception)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes to the drawing, at a place in pixels from its upper left corner."""
        bottom = self.height - top - height
        return self.drawing.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def text(self, left: float, top: float, words: str, **style: Any) -> None:
        """Add text with its upper left corner at this pixel, unless ``style`` aligns it otherwise."""
        aligned = {"ha": "left", "va": "top"} | style
        self.drawing.text(left / self.width, 1 - top / self.height, words, **aligned)

    def legend(self, handles: Sequence[Artist], columns: int) -> None:
        """Add a legend along the upper edge of the drawing."""
        self.drawing.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(-0.008, 1.0),
            borderaxespad=0.0,
            borderpad=0.2,
            ncols=columns,
            columnspacing=1.6,
            handletextpad=0.5,
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
        return _tidied(text[text.index("<svg") :], self.width, self.height)

    def pdf(self) -> bytes:
        """Return the drawing as a PDF file with embedded fonts; the same data give the same bytes."""
        buffer = io.BytesIO()
        # Type 42 fonts: publishers refuse matplotlib's default, Type 3.
        with matplotlib.rc_context(cast(Any, _LOOK | {"pdf.fonttype": 42})), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            self.drawing.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Producer": None})
        return buffer.getvalue()


def _tidied(svg: str, width: float, height: float) -> str:
    body = svg[svg.index(">") + 1 :]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    # matplotlib's style rule would apply to the whole page; the root element of the drawing carries it instead.
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href").replace("<defs></defs>", "")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"<[^>]+>", _tidied_tag, body)
    body = re.sub(r">\s+<", "><", body)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        'style="stroke-linejoin:round;stroke-linecap:butt">'
    )
    return head + body.strip()


def _tidied_tag(found: re.Match[str]) -> str:
    # Hundredths of a pixel are invisible, and further digits would double the size of the page.
    tag = re.sub(r"(?<=\.\d\d)\d{3,}", "", found[0])
    if "<text" in tag:
        tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
        # Text is measured with matplotlib's own font and displayed in the reader's.
        tag = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui,sans-serif", tag)
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
