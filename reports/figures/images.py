"""Draw the images that gradient inversions reconstructed."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from PIL import Image

from ...audit.arrays import FloatArray
from ...audit.wording import counted
from ...suites.results.record import Record
from ..reading.claims import beyond_claims
from ..reading.pooling import grouped, shared
from ..reading.run_folder import Order, RunFolder, once_per_run
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import observer_words
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Sheet
from .letters import SMALL

IMAGE_DESCRIPTION = (
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
_SIDE, _STEP, _IMAGE_HEAD = 92.0, 104.0, 56.0
_IMAGE_HEIGHT = _IMAGE_HEAD + 2 * _SIDE + 44


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

    @property
    def name(self) -> str:
        """The attack's name, with a mark if it is a null attack or if no claim covers it."""
        mark = "null attack" if self.null else "out of scope" if self.beyond else ""
        return f"{self.attack} ({mark})" if mark else self.attack


def reconstructions(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw reconstructed images, one figure per federation and gradient inversion, as many as fit on the page; none if
    no images were stored.
    """
    order = folder.order
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
        figure = _image_figure(federation, attack, strips, many=len({name for name, _ in attacks}) > 1)
        if len(figure.svg) <= room:
            figures.append(figure)
            room -= len(figure.svg)
        else:
            left_out.append(f"{attack} on {federation}")
    if left_out and figures:
        words = f"{figures[-1].description} Left out to keep the page small: {', '.join(left_out)}."
        figures[-1] = replace(figures[-1], description=words)
    return tuple(figures)


def three_pictures(folder: RunFolder, defense: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Return three titled images as data URLs, with a description of the adversary, for the picture that an attack
    reconstructs best without a defense: the original, the attack's reconstruction, and its reconstruction under
    ``defense``. Return None if the run holds no such pictures.
    """
    if (best := _best_without(folder)) is None:
        return None
    without, original, rebuilt = best
    for record in folder.rows("attack", status="ok"):
        same = (record.defense, record.federation, record.attack) == (defense, without.federation, without.attack)
        if same and record.metric == "psnr" and (arrays := folder.files.arrays(record)):
            for one, other in zip(arrays["originals"], arrays["reconstructions"], strict=True):
                if np.array_equal(one, original):
                    pictures = (("original", original), ("without a defense", rebuilt), ("with it", other))
                    _, table = folder.federations.get(without.federation, (None, {}))
                    each = ["one image each"] if table.get("partition") == "one_sample" else []
                    size = ", ".join([*folder.size_of(without.federation), *each])
                    where = f"{without.federation} ({size})" if size else without.federation
                    who = f"{observer_words(without.observer)}, by {without.attack} on {where}"
                    return who, [(title, _address(image)) for title, image in pictures]
    return None


@once_per_run
def _best_without(folder: RunFolder) -> tuple[Record, FloatArray, FloatArray] | None:
    """The row of the best reconstruction without a defense, its original, and the reconstruction."""
    best: tuple[float, Record, FloatArray, FloatArray] | None = None
    for record in folder.rows("attack", status="ok"):
        bare = record.metric == "psnr" and record.defense == undefended([record.defense])
        if bare and (arrays := folder.files.arrays(record)):
            psnr = np.nan_to_num(arrays["psnr"], nan=-np.inf)
            place = int(np.argmax(psnr))
            if best is None or psnr[place] > best[0]:
                best = float(psnr[place]), record, arrays["originals"][place], arrays["reconstructions"][place]
    return None if best is None else best[1:]


def _address(image: FloatArray) -> str:
    content = io.BytesIO()
    Image.fromarray(_pixels(image)).save(content, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _strips(folder: RunFolder, order: Order, records: Sequence[Record]) -> list[Strip]:
    groups = grouped(sorted(records, key=lambda record: order.defense(record.defense)), "attack", "defense")
    return [strip for group in groups if (strip := _strip(folder, group))]


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
        **shared(group[0], "attack", "defense"),
        null=group[0].role == "null",
        beyond=beyond_claims(folder, group[0].federation, group[0].defense, group[0].observer),
        originals=np.concatenate([arrays["originals"] for arrays in kept])[chosen],
        reconstructions=np.concatenate([arrays["reconstructions"] for arrays in kept])[chosen],
        psnr=psnr[chosen],
        n=len(psnr),
    )


def _image_figure(federation: str, attack: str, strips: Sequence[Strip], many: bool) -> Figure:
    title = frame.titled(f"What {attack} reconstructed", federation, many)
    with Sheet(f"reconstructions-{federation}-{attack}", _IMAGE_HEIGHT * frame.rows_of(len(strips))) as sheet:
        # One pair of axes for all images, because creating axes takes a hundred times as long as drawing an image.
        ax = sheet.axes(0, 0, frame.WIDTH, sheet.height)
        ax.set_axis_off()
        # Set before the images, each of which would change the limits. The colours are bytes already.
        ax.set(xlim=(0, frame.WIDTH), ylim=(sheet.height, 0))
        norm = Normalize(0, 255)
        for (left, top), strip in zip(sheet.cells(len(strips), 0.0, _IMAGE_HEIGHT), strips, strict=True):
            name = f"null attack: {strip.attack}" if strip.null else strip.defense
            sheet.heading(left, top, name, [f"{counted(strip.n, 'image')}{_scope(strip)}"])
            for rank in range(len(_RANKS)):
                _pair(sheet, ax, left + _STEP * rank, top + _IMAGE_HEAD, strip, rank, norm)
        return sheet.figure(title=title, description=IMAGE_DESCRIPTION, table=_image_table(title, strips))


def _pair(sheet: Sheet, ax: Axes, left: float, top: float, strip: Strip, rank: int, norm: Normalize) -> None:
    sheet.text(left, top - 14, _RANKS[rank], size=SMALL, color=frame.MUTED)
    for place, image in enumerate((strip.originals[rank], strip.reconstructions[rank])):
        above = top + 3 + place * (_SIDE + 5)
        extent = (left, left + _SIDE, above + _SIDE, above)
        ax.imshow(_pixels(image), norm=norm, extent=extent, interpolation="none", aspect="auto", clip_on=False)
    words = f"{_psnr(rank, strip)} dB"
    sheet.text(left, top + 2 * _SIDE + 12, words, size=SMALL, color=frame.MUTED)


def _scope(strip: Strip) -> str:
    return ", out of scope" if strip.beyond and not strip.null else ""


def _pixels(image: FloatArray) -> NDArray[np.uint8]:
    """``image``: (channel, height, width) in [0, 1] -> (height, width, 3), at most ``MOST_PIXELS`` per side."""
    # Every second or third pixel instead of their mean, because averaging would hide the noise of an attack.
    step = -(-max(image.shape[1:]) // MOST_PIXELS)
    shown = np.clip(np.moveaxis(image[:, ::step, ::step], 0, -1), 0.0, 1.0)
    colour = shown[..., :3] if shown.shape[-1] >= 3 else np.repeat(shown[..., :1], 3, axis=-1)
    return np.asarray(np.round(255 * colour), dtype=np.uint8)


def _image_table(title: str, strips: Sequence[Strip]) -> Table:
    psnr: dict[str, Callable[[Strip], str]] = {
        Right(f"{rank} PSNR, dB"): partial(_psnr, place) for place, rank in enumerate(_RANKS)
    }
    return tabulate(
        title,
        strips,
        {
            "attack": lambda strip: strip.name,
            "defense": lambda strip: strip.defense,
            Right("images"): lambda strip: str(strip.n),
            **psnr,
        },
    )


def _psnr(rank: int, strip: Strip) -> str:
    return numerals.metric_value("psnr", float(strip.psnr[rank]))
