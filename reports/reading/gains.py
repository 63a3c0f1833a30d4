"""Compute by how many decibels (PSNR) each gradient inversion exceeds the best guess that ignores the update."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...suites.results.record import Record
from .order import Order
from .pooling import LEVEL, grouped
from .run_folder import RunFolder

Image = tuple[int | None, int | None]
"""Seed and record number, which identify an image whatever attack and observer it was reconstructed by."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The difference in PSNR between one attack on one defense and the best null attack (a guess that ignores the
    update) on the same federation and defense.

    ``null``: label of the null attack, empty where none was run. ``psnr``: (n,), of the attack's images, which come
    from ``uploads`` different uploads. ``mean``: mean over uploads of the difference to the null attack. ``low``,
    ``high``: interval by Student's t over uploads, because images of one upload are not independent, with a Bonferroni
    correction for the ``attacks`` on this defense. The last three are None where they cannot be computed.
    """

    federation: str
    defense: str
    control: bool
    attack: str
    observer: str
    attacks: int
    null: str
    psnr: tuple[float, ...]
    uploads: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def beats_null(self) -> bool:
        """Whether the whole confidence interval of the PSNR gain over the best null attack (a guess that ignores the
        update) lies above zero.
        """
        return self.low is not None and self.low > 0


def gains(folder: RunFolder) -> list[Gain]:
    """Compute PSNR gains over the best null attack (a guess that ignores the update), one per federation, defense and
    attack that reconstructed images, in the suite's order.
    """
    order = Order.of(folder)
    targets = sorted(
        grouped(psnr_records(folder, "attack", "null"), "federation", "defense"),
        key=lambda group: (order.federation(group[0].federation), order.defense(group[0].defense)),
    )
    return [gain for target in targets for gain in _of_target(target, order)]


def psnr_records(folder: RunFolder, *roles: str) -> list[Record]:
    """Return the result rows that hold the PSNR of one image."""
    return [
        record
        for record in folder.rows(*roles, status="ok")
        if record.metric == "psnr" and record.scope == "record" and record.value is not None
    ]


def by_image(records: Iterable[Record]) -> dict[Image, float]:
    """Return the PSNR of each image, keyed by the image's seed and number."""
    return {(r.seed, r.record): r.value for r in records if r.value is not None}


def _of_target(records: Sequence[Record], order: Order) -> list[Gain]:
    groups = grouped(records, "role", "attack")
    nulls = {group[0].attack: by_image(group) for group in groups if group[0].role == "null"}
    attacks = {group[0].attack: group for group in groups if group[0].role == "attack"}
    # The best null is chosen on the same images. This favours the null, so the gains stay conservative.
    best = max(sorted(nulls), key=lambda name: sum(nulls[name].values()) / len(nulls[name]), default="")
    return [_gain(attacks[name], best, nulls.get(best, {}), len(attacks)) for name in sorted(attacks, key=order.attack)]


def _gain(group: Sequence[Record], null: str, null_psnr: dict[Image, float], attacks: int) -> Gain:
    first, differences = group[0], dict[tuple[int | None, int | None], list[float]]()
    for record in group:
        reference = null_psnr.get((record.seed, record.record))
        if reference is not None and record.value is not None:
            differences.setdefault(_upload(record), []).append(record.value - reference)
    # One value per upload: images of one upload share its gradient, so they are not independent samples.
    mean, low, high = _interval([sum(one) / len(one) for one in differences.values()], attacks)
    return Gain(
        federation=first.federation,
        defense=first.defense,
        control=first.control,
        attack=first.attack,
        observer=first.observer,
        attacks=attacks,
        null=null,
        psnr=tuple(sorted(by_image(group).values())),
        uploads=len({_upload(record) for record in group}),
        mean=mean,
        low=low,
        high=high,
    )


def _upload(record: Record) -> tuple[int | None, int | None]:
    """The upload that an image belongs to; an image without a client counts as an upload of its own."""
    return record.seed, record.record if record.client is None else record.client


def _interval(
    differences: Sequence[float], attacks: int
) -> tuple[float, float, float] | tuple[float | None, None, None]:
    import numpy as np
    from scipy.special import stdtrit

    sample = np.sort(np.asarray(differences, dtype=np.float64))
    if len(sample) == 0:
        return None, None, None
    mean = float(sample.mean())
    # Without scatter the interval would have width zero, which would claim certainty.
    if len(sample) == 1 or np.ptp(sample) == 0:
        return mean, None, None
    quantile = float(stdtrit(len(sample) - 1, 1 - (1 - LEVEL) / attacks / 2))
    half = quantile * float(sample.std(ddof=1)) / len(sample) ** 0.5
    return mean, mean - half, mean + half
