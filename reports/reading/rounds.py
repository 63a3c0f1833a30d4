"""Pool over seeds what was measured round by round: leakage, utility, and the epsilon spent so far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from .order import Order
from .pooling import Pooled, grouped, limits_of, mean_over_seeds, named_share
from .run_folder import RunFolder, once_per_run

Curve = Mapping[int, Pooled]
"""Number of rounds so far -> mean over seeds, in the order of the rounds."""


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """The AUC of one attack on one defense after each round."""

    federation: str
    defense: str
    control: bool
    attack: str
    null: bool
    curve: Curve


@once_per_run
def leakages(folder: RunFolder) -> list[Leakage]:
    """Pool the AUC after each round over seeds for each federation, defense and attack, in the suite's order; null
    attacks, which ignore what they observe, come last.

    Attacks that scored only once, at the end, are left out.
    """
    order = Order.of(folder)
    scored = (record for record in folder.rows("attack", "null", status="ok") if record.metric == "auc")
    found = [
        Leakage(
            federation=group[0].federation,
            defense=group[0].defense,
            control=group[0].control,
            attack=group[0].attack,
            null=group[0].role == "null",
            curve=curve,
        )
        for group in grouped(scored, "federation", "defense", "observer", "attack")
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


def utility_curve(folder: RunFolder, federation: str, defense: str, metric: str = "accuracy") -> Curve:
    """Return the test accuracy, or another metric of utility such as the loss, after each round; empty if training
    stored no values by round.
    """
    return _trainings(folder)(federation, defense, metric)


@once_per_run
def _trainings(folder: RunFolder) -> Callable[[str, str, str], Curve]:
    """A function that reads and pools a curve on first use, because several figures draw the same curves."""
    rows = grouped(folder.rows("utility", status="ok"), "federation", "defense", "metric")
    groups = {(group[0].federation, group[0].defense, group[0].metric): group for group in rows}

    @cache
    def curve(federation: str, defense: str, metric: str) -> Curve:
        return _curve(folder, groups.get((federation, defense, metric), []), metric)

    return curve


def spent(folder: RunFolder, federation: str, defense: str) -> list[StatedClaim]:
    """Return the defense's claims that also state the epsilon spent up to intermediate rounds."""
    return [one for one in folder.claims if (one.federation, one.defense) == (federation, defense) and one.spent]


def thinned(rounds: Iterable[int], count: int) -> list[int]:
    """Choose at most ``count`` of these rounds for a table, evenly spaced and including the last."""
    ordered = sorted(rounds)
    # A set, because a short list would give the same place several times.
    places = {round((number + 1) * len(ordered) / count) - 1 for number in range(count)}
    return [ordered[place] for place in sorted(places) if place >= 0]


def _curve(folder: RunFolder, records: Iterable[Record], name: str) -> Curve:
    """The mean over seeds at each round that all seeds have."""
    stored = [folder.files.rounds(record) for record in sorted(records, key=lambda record: record.seed or 0)]
    seeds = [{int(row["round"]): row for row in rows if {"round", name} <= row.keys()} for rows in stored if rows]
    # A failed seed may have fewer rounds; a mean over changing seeds would jump where one of them ends.
    common = sorted(set.intersection(*(set(rows) for rows in seeds))) if seeds else []
    return {number: _pooled([rows[number] for rows in seeds], name) for number in common}


def _pooled(rows: list[dict[str, float]], name: str) -> Pooled:
    """The mean over seeds; for a single seed with the interval that its cell stored, if any."""
    ends = {f"{name}_low", f"{name}_high"}
    if len(rows) == 1 and ends <= rows[0].keys():
        only = rows[0]
        return Pooled(value=only[name], low=only[f"{name}_low"], high=only[f"{name}_high"], n=1, method="of this run")
    # Sorted, because the order of summation would change the last digit.
    return mean_over_seeds(sorted(row[name] for row in rows), share=named_share(name), limits=limits_of(name))
