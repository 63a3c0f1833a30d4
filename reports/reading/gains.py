"""Gains: what each inversion got beyond the best null attack, image by image, in decibels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...suites.results.record import Record
from .order import Order
from .run_folder import RunFolder

LEVEL = 0.95
"""Of the intervals of all attacks on one defense and federation together."""
Image = tuple[int | None, int | None]
"""Seed and number of a record: the same image whoever looked at it, from whichever seat."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One attack on one defense against the null attack that scores best on that federation and defense.

    ``null``: its label, empty where none was run; then, and where the images allow no interval, the others are None.
    ``psnr``: (n,) of the attack's images, of so many ``uploads``; ``mean``: of the differences, upload by upload;
    ``low``, ``high``: by Student's t over uploads, for images of one upload stand and fall together; shared by the
    ``attacks`` on this defense after Bonferroni.
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
        """Whether the interval lies above zero."""
        return self.low is not None and self.low > 0


def gains(folder: RunFolder) -> list[Gain]:
    """One a federation, defense and attack that left images, in the suite's order."""
    order = Order.of(folder)
    by_target: dict[tuple[str, str], list[Record]] = {}
    for record in psnr_records(folder, "attack", "null"):
        by_target.setdefault((record.federation, record.defense), []).append(record)
    targets = sorted(by_target, key=lambda names: (order.federation(names[0]), order.defense(names[1])))
    return [gain for target in targets for gain in _of_target(by_target[target], order)]


def psnr_records(folder: RunFolder, *roles: str) -> list[Record]:
    """The rows that hold one image's PSNR."""
    return [
        record
        for record in folder.rows(*roles, status="ok")
        if record.metric == "psnr" and record.scope == "record" and record.value is not None
    ]


def by_image(records: Iterable[Record]) -> dict[Image, float]:
    """PSNR of each image."""
    return {(r.seed, r.record): r.value for r in records if r.value is not None}


def _of_target(records: Sequence[Record], order: Order) -> list[Gain]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.role, record.attack), []).append(record)
    nulls = {name: by_image(group) for (role, name), group in groups.items() if role == "null"}
    attacks = {name: group for (role, name), group in groups.items() if role == "attack"}
    # Chosen by its luck on these very images: that can only hurt the attacks.
    best = max(sorted(nulls), key=lambda name: sum(nulls[name].values()) / len(nulls[name]), default="")
    return [_gain(attacks[name], best, nulls.get(best, {}), len(attacks)) for name in sorted(attacks, key=order.attack)]


def _gain(group: Sequence[Record], null: str, looked_away: dict[Image, float], attacks: int) -> Gain:
    first, differences = group[0], dict[tuple[int | None, int | None], list[float]]()
    for record in group:
        beaten = looked_away.get((record.seed, record.record))
        if beaten is not None and record.value is not None:
            differences.setdefault(_upload(record), []).append(record.value - beaten)
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
    """Whose upload an image is of; an image that is of nobody stands alone."""
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
    # Equal differences would claim certainty.
    if len(sample) == 1 or np.ptp(sample) == 0:
        return mean, None, None
    quantile = float(stdtrit(len(sample) - 1, 1 - (1 - LEVEL) / attacks / 2))
    half = quantile * float(sample.std(ddof=1)) / len(sample) ** 0.5
    return mean, mean - half, mean + half
