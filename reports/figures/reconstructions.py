"""Show the best, median and worst image recovered by each gradient inversion and by guesses that ignore the update."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from ...audit.arrays import FloatArray
from ...audit.wording import counted
from ...suites.results.record import Record
from ..reading.claims import beyond_claims
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .columns import SMALL, WIDTH, rows_of
from .figure import Figure
from .sheet import MUTED, Sheet

DESCRIPTION = (
    "Each pair shows an image from the training data (above) and its reconstruction from the update (below), with the "
    "PSNR under it; higher is closer. The three pairs of a panel are its best, median (of two in the middle the closer "
    "one) and worst over all images and seeds, so the best one shows the risk of the most exposed participant. A null "
    "attack does not use the update: images no better than those of its panel have not been reconstructed. Out of "
    "scope: the defense states a claim, but none that covers this attack on this federation."
)
MOST_CHARACTERS = 800_000
"""Length of all figures of this kind on a page; the images of further attacks remain in the run's folder."""
MOST_PIXELS = 32
_RANKS = ("best", "median", "worst")
_SIDE, _STEP, _HEAD = 92.0, 104.0, 56.0
_HEIGHT = _HEAD + 2 * _SIDE + 44


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A row of pictures for one attack on one defense: the best, median and worst of ``n`` reconstructed images.

    ``beyond``: whether the defense states a claim, but none that covers the adversary of the attack.
    ``originals``, ``reconstructions``: (3, channel, height, width) in [0, 1]; ``psnr``: (3,).
    """

    attack: str
    defense: str
    null: bool
    beyond: bool
    originals: FloatArray
    reconstructions: FloatArray
    psnr: FloatArray
    n: int


def reconstructions(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw reconstructed images, one figure per federation and gradient inversion, as many as fit on the page; none if
    no images were stored.
    """
    order = Order.of(folder)
    records = [record for record in folder.rows("attack", "null", status="ok") if record.metric == "psnr"]
    records.sort(key=lambda record: (order.federation(record.federation), order.attack(record.attack)))
    attacks = dict.fromkeys((record.federation, record.attack) for record in records if record.role == "attack")
    figures: list[Figure] = []
    room, left_out = MOST_CHARACTERS, []
    for federation, attack in attacks:
        near = [record for record in records if record.federation == federation]
        strips = _strips(folder, order, [record for record in near if record.attack == attack])
        # The result of a null attack does not depend on the defense, so its first row is enough.
        nulls = _strips(folder, order, [record for record in near if record.role == "null"])
        strips += list({strip.attack: strip for strip in reversed(nulls)}.values())[::-1]
        if not strips:
            continue
        figure = _figure(federation, attack, strips, many=len({name for name, _ in attacks}) > 1)
        if len(figure.svg) <= room:
            figures.append(figure)
            room -= len(figure.svg)
        else:
            left_out.append(f"{attack} on {federation}")
    if left_out and figures:
        words = f"{figures[-1].description} Left out to keep the page small: {', '.join(left_out)}."
        figures[-1] = replace(figures[-1], description=words)
    return tuple(figures)


def _strips(folder: RunFolder, order: Order, records: Sequence[Record]) -> list[Strip]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda record: order.defense(record.defense)):
        groups.setdefault((record.attack, record.defense), []).append(record)
    return [strip for group in groups.values() if (strip := _strip(folder, group))]


def _strip(folder: RunFolder, group: Sequence[Record]) -> Strip | None:
    by_artifact = {record.artifact: record for record in sorted(group, key=lambda record: record.seed or 0)}
    kept = [arrays for record in by_artifact.values() if (arrays := folder.files.arrays(record))]
    # Images of different sizes cannot be ranked in one array.
    if not kept or len({arrays["originals"].shape[1:] for arrays in kept}) != 1:
        return None
    psnr = np.concatenate([arrays["psnr"] for arrays in kept])
    # A stable sort, so that images with equal PSNR give the same figure everywhere.
    ranked = np.argsort(-np.nan_to_num(psnr, nan=-np.inf), kind="stable")
    chosen = ranked[[0, (len(ranked) - 1) // 2, len(ranked) - 1]]
    return Strip(
        attack=group[0].attack,
        defense=group[0].defense,
        null=group[0].role == "null",
        beyond=beyond_claims(folder, group[0].federation, group[0].defense, group[0].observer),
        originals=np.concatenate([arrays["originals"] for arrays in kept])[chosen],
        reconstructions=np.concatenate([arrays["reconstructions"] for arrays in kept])[chosen],
        psnr=psnr[chosen],
        n=len(psnr),
    )


def _figure(federation: str, attack: str, strips: Sequence[Strip], many: bool) -> Figure:
    title = f"What {attack} reconstructed" + (f" ({federation})" if many else "")
    with Sheet(f"reconstructions-{federation}-{attack}", _HEIGHT * rows_of(len(strips))) as sheet:
        # One pair of axes for all images, because creating axes takes a hundred times as long as drawing an image.
        ax = sheet.axes(0, 0, WIDTH, sheet.height)
        ax.set_axis_off()
        # Set before the images, each of which would change the limits. The colours are bytes already.
        ax.set(xlim=(0, WIDTH), ylim=(sheet.height, 0))
        norm = Normalize(0, 255)
        for (left, top), strip in zip(sheet.cells(len(strips), 0.0, _HEIGHT), strips, strict=True):
            name = f"null attack: {strip.attack}" if strip.null else strip.defense
            sheet.heading(left, top, name, [f"{counted(strip.n, 'image')}{_scope(strip)}"])
            for rank in range(len(_RANKS)):
                _pair(sheet, ax, left + _STEP * rank, top + _HEAD, strip, rank, norm)
        return sheet.figure(title=title, description=DESCRIPTION, table=_table(title, strips))


def _pair(sheet: Sheet, ax: Axes, left: float, top: float, strip: Strip, rank: int, norm: Normalize) -> None:
    sheet.text(left, top - 14, _RANKS[rank], size=SMALL, color=MUTED)
    for place, image in enumerate((strip.originals[rank], strip.reconstructions[rank])):
        above = top + 3 + place * (_SIDE + 5)
        extent = (left, left + _SIDE, above + _SIDE, above)
        ax.imshow(_pixels(image), norm=norm, extent=extent, interpolation="none", aspect="auto", clip_on=False)
    words = f"{numerals.metric_value('psnr', float(strip.psnr[rank]))} dB"
    sheet.text(left, top + 2 * _SIDE + 12, words, size=SMALL, color=MUTED)


def _scope(strip: Strip) -> str:
    return ", out of scope" if strip.beyond and not strip.null else ""


def _pixels(image: FloatArray) -> NDArray[np.uint8]:
    """``image``: (channel, height, width) in [0, 1] -> (height, width, 3), at most ``MOST_PIXELS`` per side."""
    # Every second or third pixel instead of their mean, because averaging would hide the noise of an attack.
    step = -(-max(image.shape[1:]) // MOST_PIXELS)
    shown = np.clip(np.moveaxis(image[:, ::step, ::step], 0, -1), 0.0, 1.0)
    colour = shown[..., :3] if shown.shape[-1] >= 3 else np.repeat(shown[..., :1], 3, axis=-1)
    return np.asarray(np.round(255 * colour), dtype=np.uint8)


def _table(title: str, strips: Sequence[Strip]) -> Table:
    return Table(
        title=title,
        headers=("attack", "defense", "images", *(f"{rank} PSNR, dB" for rank in _RANKS)),
        rows=tuple(
            (
                f"{strip.attack} ({'null attack' if strip.null else 'out of scope'})"
                if strip.null or strip.beyond
                else strip.attack,
                strip.defense,
                str(strip.n),
                *(numerals.metric_value("psnr", float(value)) for value in strip.psnr),
            )
            for strip in strips
        ),
        numeric=frozenset({2, 3, 4, 5}),
    )
