"""Tabulate how often an attack names the client that holds a sample, compared with chance, by observer."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Claim
from ...audit.observer import Observer
from ...suites.results.record import Record
from ..reading.membership import covering_claims, setting_of
from ..reading.pooling import grouped, mean_over_seeds
from ..reading.run_folder import RunFolder
from . import numerals

METRIC = "source_accuracy"
ALONE = "†"


@dataclass(frozen=True, kw_only=True)
class SourceInference:
    """The source-inference results of one attack on one defense: ``rows`` holds one result row per seed, and ``claims``
    those claims that apply to the attack's observer and unit.
    """

    federation: str
    defense: str
    attack: str
    observer: Observer
    rows: tuple[Record, ...]
    claims: tuple[Claim, ...]

    @property
    def value(self) -> float:
        """The fraction of samples whose client was named correctly, averaged over seeds."""
        return mean_over_seeds([row.value or 0.0 for row in self.rows]).value

    def words(self) -> str:
        """Format the result as ``correct 0.216 [0.201, 0.231], chance 0.1``; an interval from a single seed is marked
        as such.
        """
        pooled = mean_over_seeds([row.value or 0.0 for row in self.rows], share=True)
        ends, mark = (pooled.low, pooled.high), ""
        if len(self.rows) == 1:
            # Over the samples of one run; an interval over seeds needs at least two.
            ends, mark = (self.rows[0].ci_low, self.rows[0].ci_high), ALONE
        words = f"correct {numerals.metric_value(METRIC, pooled.value)}"
        if ends[0] is not None and ends[1] is not None:
            words += f" [{', '.join(numerals.metric_value(METRIC, end) for end in ends if end is not None)}]{mark}"
        return f"{words}, {self.rows[0].unit.rpartition(', ')[2]}; {self.attack}"


def source_inferences(folder: RunFolder) -> list[SourceInference]:
    """Return one result per defense, observer and source-inference attack, in the order of the records.

    Null attacks, which ignore the view, are left out.
    """
    # The accuracy and not the advantage: a share with its chance can be read without a formula.
    measured = (row for row in folder.rows("attack", status="ok") if row.metric == METRIC and row.value is not None)
    groups = grouped(measured, "federation", "defense", "observer", "attack")
    return [found for group in groups if (found := _source(folder, group)) is not None]


def _source(folder: RunFolder, group: Sequence[Record]) -> SourceInference | None:
    first = group[0]
    setting = setting_of(folder.files.arrays(first) or {}, first.observer)
    if setting is None:
        return None
    claims, _ = covering_claims(folder, first.federation, first.defense, setting)
    return SourceInference(
        federation=first.federation,
        defense=first.defense,
        attack=first.attack,
        observer=setting.observer,
        rows=tuple(sorted(group, key=lambda row: row.seed or 0)),
        claims=claims,
    )
