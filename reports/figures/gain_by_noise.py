"""Draw by how many decibels (PSNR) gradient inversions exceed the best guess without the update, by noise level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..reading.gains import Gain, gains
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.reconstruction import gain_words
from ..tables.table import Table
from .columns import AXIS, PLOT, rows_of
from .figure import Figure
from .sheet import INK, SERIES, Sheet

DESCRIPTION = (
    "Mean gain in PSNR over the best null attack, paired image by image, against the noise on each coordinate of an "
    "update, one panel per attack. Bars: 95 % intervals, joint for all attacks at one noise level. Zero (dashed "
    "line) is the result of guessing from public data without the update: where a bar includes zero, the attack is not "
    "shown to do better."
)
LEAST_LEVELS = 3
"""Noise levels of one defense from which a curve is drawn."""
_HEAD, _HEIGHT, _FOOT = 30.0, 200.0, 56.0


@dataclass(frozen=True, kw_only=True)
class NoiseLevel:
    """The noise of one defense. ``value`` is > 0, in clip norms if the defense has one, otherwise in the unit of the
    update.
    """

    value: float
    in_clip_norms: bool

    @property
    def axis(self) -> str:
        return "noise, in clip norms" if self.in_clip_norms else "standard deviation of the noise"


def gain_by_noise(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw PSNR gains by noise level, one figure per federation and kind of defense that runs at ``LEAST_LEVELS`` noise
    levels or more.
    """
    ladders: dict[tuple[str, str, bool], dict[float, list[Gain]]] = {}
    for gain in gains(folder):
        noise = noise_of(folder, gain.federation, gain.defense)
        if noise is not None and gain.mean is not None:
            key = (gain.federation, _part(folder, gain.defense), noise.in_clip_norms)
            # Levels in clip norms and in absolute units must not share an axis.
            ladders.setdefault(key, {}).setdefault(noise.value, []).append(gain)
    return tuple(
        _figure(federation, part, NoiseLevel(value=1.0, in_clip_norms=clipped).axis, dict(sorted(levels.items())))
        for (federation, part, clipped), levels in ladders.items()
        if len(levels) >= LEAST_LEVELS
    )


def noise_of(folder: RunFolder, federation: str, defense: str) -> NoiseLevel | None:
    """Return the noise on each coordinate as stated by a claim or else by the suite; None if neither states it."""
    stated = [
        one.claim.parameters
        for one in folder.claims
        if (one.federation, one.defense, one.claim.part) == (federation, defense, "joint")
    ]
    # Claims first: a calibrated defense computes its noise, and the suite then does not state it.
    sources: list[Mapping[str, Any]] = [*stated, folder.defense_fields(defense)]
    return next((found for source in sources if (found := _read(source))), None)


def _read(source: Mapping[str, Any]) -> NoiseLevel | None:
    for name in ("noise_multiplier", "noise_std"):
        value, clip = source.get(name), source.get("clip_norm")
        if not isinstance(value, int | float) or value <= 0:
            continue
        if name == "noise_multiplier":
            return NoiseLevel(value=float(value), in_clip_norms=True)
        if isinstance(clip, int | float) and clip > 0:
            return NoiseLevel(value=value / clip, in_clip_norms=True)
        return NoiseLevel(value=float(value), in_clip_norms=False)
    return None


def _part(folder: RunFolder, defense: str) -> str:
    return str(folder.defense_fields(defense).get("part") or defense)


def _figure(federation: str, part: str, axis: str, levels: Mapping[float, Sequence[Gain]]) -> Figure:
    attacks = list(dict.fromkeys(gain.attack for group in levels.values() for gain in group))
    height = _HEAD + _HEIGHT + _FOOT
    with Sheet(f"gain-by-noise-{federation}-{part}", height * rows_of(len(attacks))) as sheet:
        panels = []
        for place, (left, top) in enumerate(sheet.cells(len(attacks), 0.0, height)):
            attack = attacks[place]
            sheet.heading(left, top, attack, [])
            ax = sheet.axes(left + AXIS, top + _HEAD, PLOT, _HEIGHT)
            _panel(ax, place, [(x, gain) for x, group in levels.items() for gain in group if gain.attack == attack])
            ax.set(xlabel=axis, ylabel="gain, dB")
            panels.append(ax)
        # One scale for all panels, so that attacks can be compared.
        limits = [ax.get_ylim() for ax in panels]
        for ax in panels:
            ax.set(xlim=(min(levels) / 1.5, 1.5 * max(levels)), ylim=(min(min(limits)), max(map(max, limits))))
        title = f"Reconstruction against the noise of {part} ({federation})"
        return sheet.figure(title=title, description=DESCRIPTION, table=_table(title, axis, levels, attacks))


def _panel(ax: Axes, place: int, points: Sequence[tuple[float, Gain]]) -> None:
    ax.set_xscale("log")
    # The default labels of a log axis are formulas, which the sheet prints as plain text.
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid()
    ax.axhline(0.0, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    colour = SERIES[place % len(SERIES)]
    ax.plot([x for x, _ in points], [gain.mean or 0.0 for _, gain in points], color=colour, marker="o", markersize=6)
    for x, gain in points:
        if gain.low is not None and gain.high is not None:
            ax.plot([x, x], [gain.low, gain.high], color=colour, linewidth=1.4, alpha=0.6)


def _table(title: str, axis: str, levels: Mapping[float, Sequence[Gain]], attacks: Sequence[str]) -> Table:
    found = {(noise, gain.attack): gain for noise, group in levels.items() for gain in group}
    rows = [(f"{noise:.3g}", *(_cell(found.get((noise, one))) for one in attacks)) for noise in levels]
    ends = (
        max((noise for noise in levels if (noise, one) in found and found[noise, one].beats_null), default=None)
        for one in attacks
    )
    last = ("largest noise with a gain", *("none" if end is None else f"{end:.3g}" for end in ends))
    return Table(title=title, headers=(axis, *attacks), rows=(*rows, last), numeric=frozenset(range(len(attacks) + 1)))


def _cell(gain: Gain | None) -> str:
    return numerals.NOTHING if gain is None else gain_words(gain)
