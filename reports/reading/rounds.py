"""Rounds: what was measured round by round, pooled over seeds: leakage, accuracy, and the epsilon spent so far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from .order import Order
from .pooling import Pooled, mean_over_seeds
from .run_folder import RunFolder, once_a_run

Curve = Mapping[int, Pooled]
"""Rounds so far -> the mean over seeds, in the order of the rounds."""


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """The AUC of one attack on one defense as it stood after so many rounds."""

    federation: str
    defense: str
    control: bool
    attack: str
    null: bool
    curve: Curve


@once_a_run
def leakages(folder: RunFolder) -> list[Leakage]:
    """One a federation, defense and attack that scored round by round, in the suite's order, null attacks last."""
    order = Order.of(folder)
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in folder.rows("attack", "null", status="ok"):
        if record.metric == "auc":
            groups.setdefault((record.federation, record.defense, record.observer, record.attack), []).append(record)
    found = [
        Leakage(
            federation=group[0].federation,
            defense=group[0].defense,
            control=group[0].control,
            attack=group[0].attack,
            null=group[0].role == "null",
            curve=curve,
        )
        for group in groups.values()
        if len(curve := _curve(folder, group, "auc")) > 1
    ]
    return sorted(
        found,
        key=lambda one: (
            order.federation(one.federation),
            order.defense(one.defense),
            one.null,
            order.attack(one.attack),
        ),
    )


def accuracy(folder: RunFolder, federation: str, defense: str, metric: str = "accuracy") -> Curve:
    """Test accuracy, or another metric of utility, after so many rounds; empty where training left none."""
    return _trainings(folder)(federation, defense, metric)


@once_a_run
def _trainings(folder: RunFolder) -> Callable[[str, str, str], Curve]:
    """Reads and pools each curve when it is first asked for: several figures draw the same ones."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for row in folder.rows("utility", status="ok"):
        groups.setdefault((row.federation, row.defense, row.metric), []).append(row)

    @cache
    def curve(federation: str, defense: str, metric: str) -> Curve:
        return _curve(folder, groups.get((federation, defense, metric), []), metric)

    return curve


def spent(folder: RunFolder, federation: str, defense: str) -> list[StatedClaim]:
    """The defense's claims that say what their first rounds spend."""
    return [one for one in folder.claims if (one.federation, one.defense) == (federation, defense) and one.spent]


def thinned(rounds: Iterable[int], count: int) -> list[int]:
    """At most ``count`` of these rounds, evenly, the last among them: what a table shows of a curve."""
    ordered = sorted(rounds)
    places = {round((number + 1) * len(ordered) / count) - 1 for number in range(count)}
    return [ordered[place] for place in sorted(places) if place >= 0]


def _curve(folder: RunFolder, records: Iterable[Record], name: str) -> Curve:
    """The mean over seeds of the rounds that each of them has."""
    stored = [folder.files.rounds(record) for record in sorted(records, key=lambda record: record.seed or 0)]
    seeds = [{int(row["round"]): row for row in rows if {"round", name} <= row.keys()} for rows in stored if rows]
    common = sorted(set.intersection(*(set(rows) for rows in seeds))) if seeds else []
    return {number: _pooled([rows[number] for rows in seeds], name) for number in common}


def _pooled(rows: list[dict[str, float]], name: str) -> Pooled:
    """Of one seed with the interval that its cell states, if any."""
    ends = {f"{name}_low", f"{name}_high"}
    if len(rows) == 1 and ends <= rows[0].keys():
        only = rows[0]
        return Pooled(value=only[name], low=only[f"{name}_low"], high=only[f"{name}_high"], n=1, method="of this run")
    return mean_over_seeds(sorted(row[name] for row in rows))
