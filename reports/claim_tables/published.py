"""Compare a paper's results, as listed in the suite, with the run's own results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..reading.pooling import Pooled
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import pooled_attacks, pooled_utility
from ..tables.table import Table

EPSILON = "epsilon"


@dataclass(frozen=True, kw_only=True)
class PublishedValue:
    """A table row for one published result: ``paper`` is the value printed in the paper at ``source``, and ``ours`` the
    run's value, None if not measured.
    """

    federation: str
    defense: str
    metric: str
    unit: str
    attack: str
    paper: float
    ours: Pooled | None
    source: str


def published_values(folder: RunFolder) -> list[PublishedValue]:
    """Return one row for each published value in the suite, in its order."""
    named = folder.manifest.suite.get("published")
    # Most suites compare with no paper.
    if not isinstance(named, list):
        return []
    return [_compared(folder, row) for row in named if isinstance(row, dict) and _is_number(row.get("value"))]


def published_table(rows: list[PublishedValue]) -> Table:
    """Return a table of a paper's values and the run's values, with their differences."""
    several = len({row.federation for row in rows}) > 1
    about = ("federation", "defense", "quantity") if several else ("defense", "quantity")
    return Table(
        title="Compared with the paper",
        headers=(*about, "paper", "ours", "ours − paper", "n", "where"),
        rows=tuple(
            (
                *([row.federation] if several else []),
                row.defense,
                _what(row),
                _number(row, row.paper),
                _ours(row),
                numerals.NOTHING if row.ours is None else _number(row, row.ours.value - row.paper),
                numerals.NOTHING if row.ours is None else str(row.ours.n),
                row.source,
            )
            for row in rows
        ),
        numeric=frozenset(range(len(about), len(about) + 4)),
        about=len(about),
        note="The paper's value is the printed one, mostly from one run of its own code. Ours is a mean over seeds "
        "with a 95 % interval, or the epsilon that a claim states. If the interval excludes the paper's value, the "
        "two differ; this does not show which one is wrong.",
    )


def _is_number(value: object) -> bool:
    """Suite files are validated, but a manifest may have been edited by hand."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compared(folder: RunFolder, row: Mapping[str, Any]) -> PublishedValue:
    metric, unit, attack = (str(row.get(field) or "") for field in ("metric", "unit", "attack"))
    federation, defense = str(row.get("federation", "")), str(row.get("defense", ""))
    return PublishedValue(
        federation=federation,
        defense=defense,
        metric=metric,
        unit=unit,
        attack=attack,
        paper=float(row["value"]),
        ours=_stated(folder, federation, defense, unit)
        if metric == EPSILON
        else _measured(folder, federation, defense, metric, attack),
        source=str(row.get("source", "")),
    )


def _stated(folder: RunFolder, federation: str, defense: str, unit: str) -> Pooled | None:
    """The largest epsilon that the defense states about this unit: of several claims the one that covers all users."""
    stated = [
        one.claim.epsilon
        for one in folder.claims
        if (one.federation, one.defense, str(one.claim.unit)) == (federation, defense, unit)
    ]
    if not stated:
        return None
    # A claim is computed and not measured, so it has no interval.
    return Pooled(value=max(stated), low=None, high=None, n=len(stated), method="stated")


def _measured(folder: RunFolder, federation: str, defense: str, metric: str, attack: str) -> Pooled | None:
    place = federation, defense, metric
    if not attack:
        # Without an attack the paper's value is a metric of the utility, such as accuracy.
        own = [row.pooled for row in pooled_utility(folder) if (row.federation, row.defense, row.metric) == place]
    else:
        own = [
            row.pooled
            for row in pooled_attacks(folder)
            if (row.federation, row.defense, row.metric) == place and row.attack == attack
        ]
    return own[0] if own else None


def _what(row: PublishedValue) -> str:
    if row.metric == EPSILON:
        return f"ε of a {row.unit}"
    name = numerals.metric(row.metric).label
    return f"{row.attack}: {name}" if row.attack else name


def _number(row: PublishedValue, value: float) -> str:
    if row.metric == EPSILON:
        # The difference of two epsilons may be negative, and the number itself is printed with a true minus sign.
        return ("−" if value < 0 else "") + numerals.significant(abs(value))
    return numerals.metric_value(row.metric, value)


def _ours(row: PublishedValue) -> str:
    if row.ours is None:
        return "not stated" if row.metric == EPSILON else "not measured"
    return f"{_number(row, row.ours.value)} {numerals.interval_words(row.metric, row.ours)}".strip()
