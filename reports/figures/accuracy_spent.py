"""Draw accuracy after each round against the epsilon spent so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from ...suites.results.claims_file import StatedClaim
from ..reading.order import Order
from ..reading.rounds import Curve, accuracy, spent, thinned
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import defense_words, neighbours_of, pooled_words
from ..tables.table import Table
from .figure import Figure
from .labels import spread
from .sheet import DASHES, INK, MUTED, SERIES, Sheet

KEY = "accuracy-spent"
TITLE = "Accuracy against the ε spent so far"
DESCRIPTION = (
    "Test accuracy of the global model after each round (mean over seeds) against the ε that the claim's own "
    "accountant gives for the rounds so far, at the noise of the whole claim. Within a panel, higher and further left "
    "is better; panels cannot be compared. A point before the end of a line is not a claim of the defense: calibrated "
    "to stop there, it would have used other noise. Dashed line: final accuracy without a defense."
)
_WIDTH, _COLUMNS, _PANEL, _HEIGHT, _LEFT, _GAP, _TOP = 940.0, 3, 268.0, 310.0, 52.0, 36.0, 6.0
_TABLED = 5


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A defense's claim, and its accuracy at each round for which the claim states the epsilon spent so far."""

    stated: StatedClaim
    curve: Curve

    @property
    def spent(self) -> dict[int, float]:
        return {rounds: epsilon for rounds, epsilon in self.stated.spent if rounds in self.curve}

    @property
    def label(self) -> str:
        return defense_words(self.stated.defense, self.stated.control)


def accuracy_spent(folder: RunFolder) -> Figure | None:
    """Draw accuracy against epsilon spent; return None if no claim of a trained federation states the epsilon spent up
    to intermediate rounds.
    """
    order = Order.of(folder)
    panels: dict[tuple[str, str, str], list[_Line]] = {}
    for federation in order.federations:
        for defense in order.defenses:
            curve = accuracy(folder, federation, defense)
            for stated in spent(folder, federation, defense):
                line = _Line(stated=stated, curve=curve)
                # A single point is no curve; the figure of privacy and utility shows it.
                if len(line.spent) > 1:
                    about = (federation, neighbours_of(stated.claim), stated.claim.observer.phrase)
                    panels.setdefault(about, []).append(line)
    if not panels:
        return None
    reference = undefended(order.defenses)
    with Sheet(KEY, _WIDTH, _TOP + _HEIGHT * -(-len(panels) // _COLUMNS)) as sheet:
        for place, ((federation, neighbours, observer), lines) in enumerate(panels.items()):
            row, column = divmod(place, _COLUMNS)
            left, top = _LEFT + column * (_PANEL + _GAP), _TOP + row * _HEIGHT
            sheet.text(left, top + 4, neighbours, size=11, weight="bold")
            sheet.text(left, top + 21, f"adversary: {observer}", size=9.5, color=MUTED)
            ax = sheet.axes(left, top + 44, _PANEL, _HEIGHT - 96)
            _panel(ax, lines, accuracy(folder, federation, reference) if reference else {})
            ax.set(xlabel="ε so far", ylabel="" if column else "accuracy", ylim=(0, 1))
        svg = sheet.svg()
    return Figure(key=KEY, title=TITLE, description=DESCRIPTION, svg=svg, table=_table(panels))


def _panel(ax: Axes, lines: list[_Line], undefended_curve: Curve) -> None:
    for place, line in enumerate(lines):
        colour, dash = SERIES[place % len(SERIES)], DASHES[place % len(DASHES)]
        values = [line.curve[rounds].value for rounds in line.spent]
        ax.plot(list(line.spent.values()), values, color=colour, linestyle=dash, linewidth=1.6)
    if undefended_curve:
        last = undefended_curve[max(undefended_curve)]
        ax.axhline(last.value, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    ax.grid()
    # Space to the right of the last point for the longest label, at six pixels per letter.
    room = min(0.6, (6.3 * max(len(line.label) for line in lines) + 14) / _PANEL)
    ax.set_xlim(0, max(max(line.spent.values()) for line in lines) / (1 - room))
    ends = [line.curve[max(line.spent)].value for line in lines]
    # Defenses with similar accuracy would print their labels over each other.
    heights = spread(ends, gap=0.055)
    for place, (line, height) in enumerate(zip(lines, heights, strict=True)):
        ax.annotate(line.label, (max(line.spent.values()), height), xytext=(7, 0), textcoords="offset points", size=10,
                    color=SERIES[place % len(SERIES)], ha="left", va="center")  # fmt: skip


def _table(panels: Mapping[tuple[str, str, str], list[_Line]]) -> Table:
    many = len({federation for federation, *_ in panels}) > 1
    rows = [
        (
            f"{federation}/{line.label}" if many else line.label,
            line.stated.claim.describe(),
            f"{rounds}",
            numerals.epsilon(line.spent[rounds]),
            pooled_words("accuracy", line.curve[rounds], intervals=True),
        )
        for (federation, *_), lines in panels.items()
        for line in lines
        for rounds in thinned(line.spent, _TABLED)
    ]
    return Table(
        title=TITLE,
        headers=("defense", "claim", "rounds so far", "ε so far", "accuracy"),
        rows=tuple(rows),
        numeric=frozenset({2, 3, 4}),
        about=2,
    )
