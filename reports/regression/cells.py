"""Cells of the family: what of a run is compared with another, one value a seed."""

import hashlib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from ...suites.results.record import Record

PRIMARY = (
    "auc",
    "psnr",
    "source_advantage",
    "label_over_chance",
    "label_accuracy",
    "label_exact_rate",
    "accuracy",
    "iou",
)
"""The metric that stands for an attack is the first of these that it measures: membership by AUC, reconstruction by
PSNR, source by the advantage over chance, labels by the accuracy over chance where lots allow it, else by the accuracy,
training by the accuracy, of pixels by the IoU. Chosen by what was measured, never by how it came out: the best of
several would cost alpha.
"""


@dataclass(frozen=True, kw_only=True, order=True)
class CellKey:
    """What pairs two rows, but for the seed."""

    federation: str
    defense: str
    attack: str
    observer: str
    metric: str

    def __str__(self) -> str:
        seat = f" ({self.observer})" if self.observer else ""
        return f"{self.federation}/{self.defense}/{self.attack}{seat} {self.metric}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A cell's values by seed, and the attack and the reading that they were made with.

    ``identity``: digest of the records' ``cell_id``s, so of all that the run says determines the values.
    """

    attack_version: str
    direction: str
    identity: str
    values: dict[int, float]

    @property
    def sign(self) -> int:
        """1 where a higher value is worse, -1 where a lower one is."""
        return 1 if self.direction == "higher_leaks" else -1


def family(records: Iterable[Record]) -> dict[CellKey, Series]:
    """The cells of a run that are compared, in a fixed order: utility and attacks, each by its primary metric.

    Null attacks are not in it: they do not see what they attack, so no change of a defense can make them worse; each
    would only take a part of alpha. Controls are not either: a broken twin is broken on purpose, nobody minds that it
    leaks more, and whether its audit still sees it is the claims' affair. Rows pooled over seeds have no partner.

    Several rows of a seed (one an image) become one value, their median: images of a seed share its training and its
    noise, so the seed is what repeats independently, and a mean would hang on one image with an outlying PSNR.
    """
    kept = [row for row in records if row.role in ("attack", "utility") and not row.control and row.seed is not None]
    measured: dict[CellKey, dict[int, list[Record]]] = {}
    for row in kept:
        if row.status == "ok" and row.value is not None and row.seed is not None and row.metric in PRIMARY:
            measured.setdefault(_key(row), {}).setdefault(row.seed, []).append(row)
    first: dict[tuple[str, str, str], str] = {}
    for key in sorted(measured, key=lambda key: PRIMARY.index(key.metric)):
        first.setdefault((key.federation, key.attack, key.observer), key.metric)
    return {
        key: _series(key, measured[key])
        for key in sorted(measured)
        if first[key.federation, key.attack, key.observer] == key.metric
    }


def _key(row: Record) -> CellKey:
    return CellKey(
        federation=row.federation,
        defense=row.defense,
        attack=row.attack,
        observer=row.observer,
        metric=row.metric,
    )


def _series(key: CellKey, by_seed: dict[int, list[Record]]) -> Series:
    one = next(iter(by_seed.values()))[0]
    if not one.direction:
        raise ValueError(f"{key}: a row that is compared must say which direction is worse, it has no direction")
    ids = {row.cell_id for rows in by_seed.values() for row in rows}
    return Series(
        attack_version=one.attack_version,
        direction=one.direction,
        identity=hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16],
        values={
            seed: float(statistics.median(row.value for row in by_seed[seed] if row.value is not None))
            for seed in sorted(by_seed)
        },
    )
