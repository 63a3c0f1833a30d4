"""Draw accuracy and loss after each round against the epsilon spent so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import printed_label
from ..reading.order import Order
from ..reading.rounds import Curve, spent, thinned, utility_curve
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import defense_words, neighbours_of, pooled_words
from ..tables.table import Table
from .columns import AXIS, PLOT, heading_height, heading_lines, rows_of
from .figure import Figure
from .labels import label_column, label_height, label_room, loss_scale
from .sheet import DASHES, INK, RED, SERIES, Sheet

KEY = "accuracy-spent"
TITLE = "Accuracy and loss against the ε spent so far"
DESCRIPTION = (
    "Test accuracy of the global model after each round (mean over seeds) against the ε that the claim's own "
    "accountant gives for the rounds so far, at the noise of the whole claim. Within a panel, higher and further left "
    "is better; panels cannot be compared. Lower panels: the mean cross-entropy on the same data. A point before the "
    "end of a line is not a claim of the defense: calibrated to stop there, it would have used other noise. Dashed "
    "lines: final values without a defense. Red: controls, which break their claim on purpose."
)
_ACCURACY, _BETWEEN, _LOSS, _FOOT = 200.0, 20.0, 130.0, 52.0
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
    def name(self) -> str:
        return printed_label(self.stated.defense)

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
    below = [heading_lines(f"adversary: {observer}") for *_, observer in panels]
    head, accuracy = heading_height(below), max(_ACCURACY, *(label_height(len(lines)) for lines in panels.values()))
    # Runs of earlier versions stored no loss.
    low = _LOSS + _BETWEEN if any(line.loss for lines in panels.values() for line in lines) else 0.0
    height = head + accuracy + low + _FOOT
    with Sheet(KEY, height * rows_of(len(panels))) as sheet:
        cells = sheet.cells(len(panels), 0.0, height)
        for (left, top), ((federation, neighbours, _), lines), words in zip(cells, panels.items(), below, strict=True):
            sheet.heading(left, top, neighbours, words)
            final = _final(folder, federation, undefended(order.defenses))
            width = PLOT - label_room(line.name for line in lines)
            ax = sheet.axes(left + AXIS, top + head, width, accuracy)
            ax.set(ylabel="accuracy", ylim=(0, 1))
            _panel(ax, lines, "accuracy", final.get("accuracy"))
            if low:
                ax.tick_params(labelbottom=False)
                ax = sheet.axes(left + AXIS, top + head + accuracy + _BETWEEN, width, _LOSS)
                ax.set(ylabel=numerals.metric(numerals.LOSS).name)
                _panel(ax, lines, numerals.LOSS, final.get(numerals.LOSS))
            ax.set(xlabel="ε so far")
        return sheet.figure(title=TITLE, description=DESCRIPTION, table=_table(panels))


def _final(folder: RunFolder, federation: str, reference: str | None) -> dict[str, float]:
    """The accuracy and the loss after the last round without a defense, as far as they were stored."""
    curves = {
        metric: utility_curve(folder, federation, reference or "", metric) for metric in ("accuracy", numerals.LOSS)
    }
    return {metric: curve[max(curve)].value for metric, curve in curves.items() if curve}


def _colour(place: int, line: _Line) -> str:
    return RED if line.stated.control else SERIES[place % len(SERIES)]


def _panel(ax: Axes, lines: list[_Line], metric: str, final: float | None) -> None:
    """Draw one metric of every line; labels are printed at the accuracy only."""
    values = []
    for place, line in enumerate(lines):
        colour, dash = _colour(place, line), DASHES[place % len(DASHES)]
        curve = line.loss if metric == numerals.LOSS else line.curve
        points = [(epsilon, curve[rounds].value) for rounds, epsilon in line.spent.items() if rounds in curve]
        if points:
            ax.plot(*zip(*points, strict=True), color=colour, linestyle=dash, linewidth=1.6)
        values += [value for _, value in points]
    if final is not None:
        ax.axhline(final, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        values.append(final)
    ax.grid()
    ax.set_xlim(0, 1.03 * max(max(line.spent.values()) for line in lines))
    if metric != numerals.LOSS:
        ends = [(max(line.spent.values()), line.curve[max(line.spent)].value, line.name) for line in lines]
        label_column(
            ax, [(*end, _colour(place, line)) for place, (end, line) in enumerate(zip(ends, lines, strict=True))]
        )
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
