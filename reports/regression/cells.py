"""Select the metrics of a run that are compared with another run, with one value per seed."""

import hashlib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from ...suites.results.record import Record

PRIMARY = (
    "exposure",
    "auc",
    "psnr",
    "source_advantage",
    "label_over_chance",
    "label_accuracy",
    "label_exact_rate",
    "token_over_chance",
    "accuracy",
    "iou",
    "r2",
    "macro_f1",
)
"""The first of these that an attack measures represents it: the exposure of secrets, AUC for membership, PSNR for
reconstruction, the advantage over chance for source inference, the accuracy over chance for labels where lots allow it
and else the accuracy, and the accuracy over chance for tokens. Of training it is the accuracy, IoU for segmentation, R2
for regression, and macro F1 for several labels per sample. The choice depends on what was measured and not on the
values, because choosing the best of several metrics would inflate the false positive rate.
"""


@dataclass(frozen=True, kw_only=True, order=True)
class CellKey:
    """The fields that identify a compared metric in both runs, so that its values can be paired by seed."""

    federation: str
    defense: str
    attack: str
    observer: str
    metric: str

    def __str__(self) -> str:
        observer = f" ({self.observer})" if self.observer else ""
        return f"{self.federation}/{self.defense}/{self.attack}{observer} {self.metric}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """The values of one compared metric by seed.

    ``identity``: digest of the records' ``cell_id``s, which cover the configuration and code that determine the values.
    """

    attack_version: str
    direction: str
    identity: str
    values: dict[int, float]

    @property
    def sign(self) -> int:
        """The direction of the metric: 1 if a higher value is worse, -1 if a lower value is worse."""
        return 1 if self.direction == "higher_leaks" else -1


def family(records: Iterable[Record]) -> dict[CellKey, Series]:
    """Return the metrics by which a run is compared, in a fixed order: all utility metrics, and each attack's primary
    metric.

    Left out are null attacks, which no change of a defense can affect and which would only use up a share of alpha;
    controls, whose leakage is intended and whose audits are judged as claims; and rows that were pooled over seeds,
    which cannot be paired.

    Several rows of a seed (one per image) become one value, their median. Images of a seed share its training and its
    noise, so only seeds are independent, and a mean would depend on single images with an extreme PSNR.
    """
    kept = [row for row in records if row.role in ("attack", "utility") and not row.control and row.seed is not None]
    measured: dict[CellKey, dict[int, list[Record]]] = {}
    for row in kept:
        # A failed or skipped row has no value to pair: its seed then shows up as missing, not as a change.
        if row.status == "ok" and row.value is not None and row.seed is not None and row.metric in PRIMARY:
            measured.setdefault(_key(row), {}).setdefault(row.seed, []).append(row)
    # Without the defense in the key: one metric must represent the attack on all defenses.
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
        raise ValueError(
            f"{key}: a compared result row must have a direction, which states whether higher or "
            f"lower is worse, got none"
        )
    # All seeds enter the digest: a seed whose cell has another identity was computed by other code.
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
