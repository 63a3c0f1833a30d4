"""Source inference by observer: how often an attack names the client that holds a sample, compared with chance."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Claim
from ...audit.observer import Observer
from ...suites.results.record import Record
from ..reading.membership import setting_of, speaking
from ..reading.pooling import mean_over_seeds
from ..reading.run_folder import RunFolder
from . import numerals

METRIC = "source_accuracy"
ALONE = "†"


@dataclass(frozen=True, kw_only=True)
class SourceInference:
    """One attack on one defense: its rows, one a seed; ``claims``: those that speak about it."""

    federation: str
    defense: str
    attack: str
    observer: Observer
    rows: tuple[Record, ...]
    claims: tuple[Claim, ...]

    @property
    def value(self) -> float:
        """Share of samples whose client was named, mean over seeds."""
        return mean_over_seeds([row.value or 0.0 for row in self.rows]).value

    def words(self) -> str:
        """``right 0.216 [0.201, 0.231], chance 0.1``; of one seed with the interval of its row, marked."""
        pooled = mean_over_seeds([row.value or 0.0 for row in self.rows])
        ends, mark = (pooled.low, pooled.high), ""
        if len(self.rows) == 1:
            ends, mark = (self.rows[0].ci_low, self.rows[0].ci_high), ALONE
        said = f"right {numerals.metric_value(METRIC, pooled.value)}"
        if ends[0] is not None and ends[1] is not None:
            said += f" [{', '.join(numerals.metric_value(METRIC, end) for end in ends if end is not None)}]{mark}"
        return f"{said}, {self.rows[0].unit.rpartition(', ')[2]}; {self.attack}"


def source_inferences(folder: RunFolder) -> list[SourceInference]:
    """Attacks that are no null attacks and left their setting, in the order of the rows."""
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in folder.rows("attack", status="ok"):
        if record.metric == METRIC and record.value is not None:
            groups.setdefault((record.federation, record.defense, record.observer, record.attack), []).append(record)
    return [found for group in groups.values() if (found := _source(folder, group)) is not None]


def _source(folder: RunFolder, group: Sequence[Record]) -> SourceInference | None:
    first = group[0]
    setting = setting_of(folder.files.arrays(first) or {}, first.observer)
    if setting is None:
        return None
    claims, _ = speaking(folder, first.federation, first.defense, setting)
    return SourceInference(
        federation=first.federation,
        defense=first.defense,
        attack=first.attack,
        observer=setting.observer,
        rows=tuple(sorted(group, key=lambda row: row.seed or 0)),
        claims=claims,
    )
