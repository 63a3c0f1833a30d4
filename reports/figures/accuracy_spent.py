"""Draw accuracy and loss after each round against the epsilon spent so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from ...suites.results.claims_file import StatedClaim
from ..reading.order import Order
from ..reading.rounds import Curve, spent, thinned, utility_curve
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import defense_words, neighbours_of, pooled_words
from ..tables.table import Table
from .figure import Figure
from .labels import label_ends, loss_scale
from .sheet import DASHES, INK, MUTED, SERIES, Sheet

KEY = "accuracy-spent"
TITLE = "Accuracy and loss against the ε spent so far"
DESCRIPTION = (
    "Test accuracy of the global model after each round (mean over seeds) against the ε that the claim's own "
    "accountant gives for the rounds so far, at the noise of the whole claim. Within a panel, higher and further left "
    "is better; panels cannot be compared. Lower panels: the mean cross-entropy on the same data. A point before the "
    "end of a line is not a claim of the defense: calibrated to stop there, it would have used other noise. Dashed "
    "lines: final values without a defense."
)
_WIDTH, _COLUMNS, _PANEL, _LEFT, _GAP, _TOP = 940.0, 3, 268.0, 52.0, 36.0, 6.0
_HEAD, _ACCURACY, _LOSS, _FOOT = 44.0, 214.0, 130.0, 52.0
_TABLED = 5


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A defense's claim, and its accuracy and loss after each round, of which those count whose epsilon is stated."""

    stated: StatedClaim
    curve: Curve
    loss: Curve

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
            curve, loss = (utility_curve(folder, federation, defense, metric) for metric in ("accuracy", numerals.LOSS))
            for stated in spent(folder, federation, defense):
                line = _Line(stated=stated, curve=curve, loss=loss)
                # A single point is no curve; the figure of privacy and utility shows it.
                if len(line.spent) > 1:
                    about = (federation, neighbours_of(stated.claim), stated.claim.observer.phrase)
                    panels.setdefault(about, []).append(line)
    if not panels:
        return None
    reference = undefended(order.defenses)
    # Runs of earlier versions stored no loss.
    low = _LOSS + 20 if any(line.loss for lines in panels.values() for line in lines) else 0.0
    height = _HEAD + _ACCURACY + low + _FOOT
    with Sheet(KEY, _WIDTH, _TOP + height * -(-len(panels) // _COLUMNS)) as sheet:
        for place, ((federation, neighbours, observer), lines) in enumerate(panels.items()):
            row, column = divmod(place, _COLUMNS)
            left, top = _LEFT + column * (_PANEL + _GAP), _TOP + row * height
            sheet.text(left, top + 4, neighbours, size=11, weight="bold")
            sheet.text(left, top + 21, f"adversary: {observer}", size=9.5, color=MUTED)
            ax = sheet.axes(left, top + _HEAD, _PANEL, _ACCURACY)
            ax.set(ylabel="" if column else "accuracy", ylim=(0, 1))
            _panel(ax, lines, "accuracy", utility_curve(folder, federation, reference or ""))
            if low:
                ax.tick_params(labelbottom=False)
                ax = sheet.axes(left, top + _HEAD + _ACCURACY + 20, _PANEL, _LOSS)
                ax.set(ylabel="" if column else numerals.metric(numerals.LOSS).name)
                _panel(ax, lines, numerals.LOSS, utility_curve(folder, federation, reference or "", numerals.LOSS))
            ax.set(xlabel="ε so far")
        svg = sheet.svg()
    return Figure(key=KEY, title=TITLE, description=DESCRIPTION, svg=svg, pdf=sheet.pdf, table=_table(panels))


def _panel(ax: Axes, lines: list[_Line], metric: str, undefended_curve: Curve) -> None:
    """Draw one metric of every line; labels are printed at the accuracy only."""
    values = []
    for place, line in enumerate(lines):
        colour, dash = SERIES[place % len(SERIES)], DASHES[place % len(DASHES)]
        curve = line.loss if metric == numerals.LOSS else line.curve
        points = [(epsilon, curve[rounds].value) for rounds, epsilon in line.spent.items() if rounds in curve]
        if points:
            ax.plot(*zip(*points, strict=True), color=colour, linestyle=dash, linewidth=1.6)
        values += [value for _, value in points]
    if undefended_curve:
        last = undefended_curve[max(undefended_curve)].value
        ax.axhline(last, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        values.append(last)
    ax.grid()
    # Space to the right of the last point for the longest label, at six pixels per letter.
    room = min(0.6, (6.3 * max(len(line.label) for line in lines) + 14) / _PANEL)
    ax.set_xlim(0, max(max(line.spent.values()) for line in lines) / (1 - room))
    if metric != numerals.LOSS:
        labels = [
            (max(line.spent.values()), line.curve[max(line.spent)].value, line.label, SERIES[place % len(SERIES)])
            for place, line in enumerate(lines)
        ]
        label_ends(ax, labels, size=10)
    elif values:
        loss_scale(ax, values)


def _table(panels: Mapping[tuple[str, str, str], list[_Line]]) -> Table:
    many = len({federation for federation, *_ in panels}) > 1
    rows = [
        (
            f"{federation}/{line.label}" if many else line.label,
            line.stated.claim.describe(),
            f"{rounds}",
            numerals.epsilon(line.spent[rounds]),
            pooled_words("accuracy", line.curve[rounds], intervals=True),
            pooled_words(numerals.LOSS, line.loss.get(rounds), intervals=True),
        )
        for (federation, *_), lines in panels.items()
        for line in lines
        for rounds in thinned(line.spent, _TABLED)
    ]
    return Table(
        title=TITLE,
        headers=("defense", "claim", "rounds so far", "ε so far", "accuracy", "test loss"),
        rows=tuple(rows),
        numeric=frozenset({2, 3, 4, 5}),
        about=2,
    )
