"""Pool attacks and utility over seeds, and collect what was not measured, in the suite's order."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...audit.binomial import upper_bound
from ...audit.wording import counted
from ...suites.results.record import Record
from ..reading.claims import beyond_claims
from ..reading.pooling import (
    Pooled,
    count_over_seeds,
    exact_ends,
    gathered,
    grouped,
    is_share,
    mean_over_seeds,
    median_over_images,
    range_of,
    shared,
)
from ..reading.run_folder import Order, RunFolder, once_per_run
from .numerals import ATTACK_HEADLINES, metric, metric_place, metric_value, metric_words

_ERROR = 0.05
"""Probability that a model which guesses counts as better than guessing."""
_SAME_SHARE = 1e-9


def useless_words(rows: Sequence[Record]) -> str:
    """Return why a model is of no use, judged by its measured utility rows of all seeds; empty if it is useful, or
    cannot be judged.

    A classifier of ``k`` classes must exceed an accuracy of 1/k by more than chance on the test images of one seed
    (one-sided Clopper-Pearson bound), and a mean accuracy over classes of 1/k, which every model has that names one
    class always, however large that class is. A regression must exceed an R2 of 0, which the mean of the labels has.
    """
    shown = {name: [row for row in rows if row.metric == name] for name in ("accuracy", "class_accuracy_mean", "r2")}
    if shown["r2"] and _mean(shown["r2"]) <= 0:
        return "no better than always answering the mean"
    accuracy, by_class = shown["accuracy"], shown["class_accuracy_mean"]
    guess = _guess(rows)
    images = min((row.n or 0 for row in accuracy), default=0)
    if guess is None or images < 1:
        return ""
    found = _mean(accuracy)
    low = 1 - float(upper_bound(images - round(found * images), images, _ERROR))
    if low <= guess:
        return f"not clearly better than guessing, {metric_value('accuracy', guess)}"
    if _mean(by_class) <= guess + _SAME_SHARE:
        return "no better than always naming the same class"
    return ""


def _guess(rows: Sequence[Record]) -> float | None:
    """1/k for k classes; None where they are not known."""
    classes = max((row.n or 0 for row in rows if row.metric == "class_accuracy_mean"), default=0)
    return 1 / classes if classes > 1 else None


def _mean(rows: Sequence[Record]) -> float:
    return sum(row.value or 0.0 for row in rows) / len(rows)


UNDEFENDED = ("undefended", "none", "no_defense", "no_protection", "unprotected", "plain_votes")
"""Labels of the federation without a defense, of a transfer of votes without noise; the first one that is present is
the reference for utility."""
WHOLE_CELL = "none"
"""The metric of a row that represents a whole cell in which nothing was measured."""
WORST_FIRST = ("failed", "unavailable", "skipped")
_JUDGED = ("accuracy", "r2")
_ROUNDING = 1e-6
_COUNTED = re.compile(r"95 % Clopper-Pearson over (\w+)")
"""The method of a row whose value is a share of independent units, of which ``n`` were tried."""
_CHANCE = re.compile(r", chance ([\d.e-]+)$")
"""The end of a row's unit that states what a guess is worth."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """The number of units about which an attack was right, over all seeds, such as ``24 of 24 uploads``."""

    right: int
    units: int
    kind: str

    def __str__(self) -> str:
        return f"{self.right:,} of {self.units:,} {self.kind}"


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """A table row with the result of one attack on one defense; ``pooled`` is None if nothing was measured.

    ``beyond``: whether the defense states a claim, but none in this federation that covers the adversary and unit of
    the attack. ``missing``: number of rows (or whole cells) without a value. ``status``, ``reason``: of the worst.
    ``count``: of the units behind ``pooled``, where its rows count independent units. ``chance``: the value of guessing
    that its rows state, averaged over them; None where they state none.
    """

    federation: str
    attack: str
    defense: str
    defense_place: int
    null: bool
    control: bool
    beyond: bool
    observer: str
    metric: str
    direction: str
    pooled: Pooled | None
    missing: int
    status: str
    reason: str
    count: Count | None = None
    chance: float | None = None

    @property
    def name(self) -> str:
        """The attack's name, with a mark if it is a null attack, which ignores what it observes."""
        return f"{self.attack} (null attack)" if self.null else self.attack

    @property
    def words(self) -> str:
        """The metric's name, its unit and the meaning of a higher value."""
        return metric_words(self.metric, self.direction)

    @property
    def primary(self) -> bool:
        """Whether this is the measured value of the metric that represents its attack."""
        return self.pooled is not None and self.metric in ATTACK_HEADLINES


@dataclass(frozen=True, kw_only=True)
class UtilityRow:
    """A table row with the utility of one defense; ``change`` is the pooled difference from the undefended federation
    with the same seeds. ``useless``: why the model is of no use, for the rows of its accuracy or R2; else empty.
    ``guess``: the accuracy of guessing, 1/k for k classes; None for other metrics.
    """

    federation: str
    defense: str
    control: bool
    metric: str
    direction: str
    pooled: Pooled | None
    change: Pooled | None
    missing: int
    useless: str = ""
    guess: float | None = None


@dataclass(frozen=True, kw_only=True)
class OmissionRow:
    """A table row for results that were not measured for the same reason. The row stands for ``rows`` result rows: each
    of ``metrics`` of each of ``attacks`` on the same defenses.
    """

    status: str
    attacks: tuple[str, ...]
    metrics: tuple[str, ...]
    federations: tuple[str, ...]
    defenses: tuple[str, ...]
    everywhere: bool
    rows: int
    reason: str

    @property
    def where(self) -> str:
        return "every defense" if self.everywhere else ", ".join(self.defenses)

    @property
    def counted(self) -> str:
        """The number of missing values, or of cells in which nothing was measured, in words."""
        return counted(self.rows, "cell" if self.metrics == (WHOLE_CELL,) else "value")

    @property
    def what(self) -> str:
        """The attacks and metrics in words."""
        return f"{', '.join(self.attacks)}: {self.metric_names}"

    @property
    def metric_names(self) -> str:
        return ", ".join(metric(key).name for key in self.metrics)


@once_per_run
def pooled_attacks(folder: RunFolder) -> list[AttackRow]:
    """Pool attack results over seeds and images: one row per federation, attack, metric and defense, including attacks
    that ignore what they observe (null attacks).
    """
    order = folder.order
    records = folder.rows("attack", "null")
    # A cell that failed or was skipped has a single row, which counts as missing for each of the attack's metrics.
    unmeasured = (record for record in records if record.status != "ok" and record.metric == WHOLE_CELL)
    omitted = {_target(group[0]): group for group in grouped(unmeasured, "federation", "attack", "defense")}
    groups = grouped(records, "federation", "attack", "observer", "metric", "defense")
    rows = [_attack_row(folder, group, order, omitted.get(_target(group[0]), [])) for group in groups]
    return sorted(
        rows,
        key=lambda row: (
            order.federation(row.federation),
            row.null,
            order.attack(row.attack),
            row.observer,
            metric_place(row.metric),
            row.defense_place,
        ),
    )


@once_per_run
def primary_results(folder: RunFolder) -> dict[str, list[AttackRow]]:
    """Return the measured primary results of each defense, in the order of the tables of attacks."""
    return gathered((row.defense, row) for row in pooled_attacks(folder) if row.primary)


def _target(record: Record) -> tuple[str, str, str]:
    return record.federation, record.attack, record.defense


def _attack_row(folder: RunFolder, group: list[Record], order: Order, omitted_cells: list[Record]) -> AttackRow:
    first = group[0]
    null = first.role == "null"
    # A whole omitted cell is missing in every metric of the attack, but must not be counted twice.
    others = [] if first.metric == WHOLE_CELL else omitted_cells
    omitted = sorted([r for r in group if r.status != "ok"] + others, key=lambda r: WORST_FIRST.index(r.status))
    return AttackRow(
        **shared(first, "federation", "attack", "defense"),
        defense_place=order.defense(first.defense),
        null=null,
        control=first.control,
        # A null attack uses nothing that its adversary receives, so that there is nothing to cover.
        beyond=not null and beyond_claims(folder, first.federation, first.defense, first.observer, first.attack),
        **shared(first, "observer", "metric", "direction"),
        pooled=_pooled(group),
        missing=len(omitted),
        status=omitted[0].status if omitted else "",
        reason=omitted[0].reason if omitted else "",
        count=_count(_measured(group)),
        chance=_chance(_measured(group)),
    )


@once_per_run
def pooled_utility(folder: RunFolder) -> list[UtilityRow]:
    """Pool utility over seeds: one row per federation, metric and defense, with the paired difference from no
    defense.
    """
    order = folder.order
    groups = grouped(folder.rows("utility"), "federation", "metric", "defense")
    references = {
        name: undefended(r.defense for r in folder.rows("utility") if r.federation == name)
        for name in order.federations
    }
    # By seed, because the change is paired: both trainings of a seed share data, initial model and sampling.
    baselines = {
        (group[0].federation, group[0].metric): {record.seed: record for record in _measured(group)}
        for group in groups
        if group[0].defense == references[group[0].federation]
    }
    rows = [_utility_row(group, baselines.get((group[0].federation, group[0].metric), {})) for group in groups]
    judged = {
        (group[0].federation, group[0].defense): (useless_words(_measured(group)), _guess(_measured(group)))
        for group in grouped(folder.rows("utility"), "federation", "defense")
    }
    rows = [
        replace(row, useless=useless, guess=guess if row.metric == "accuracy" else None)
        if row.metric in _JUDGED
        else row
        for row in rows
        for useless, guess in [judged[row.federation, row.defense]]
    ]
    return sorted(rows, key=lambda row: (order.federation(row.federation), row.metric, order.defense(row.defense)))


def _utility_row(group: list[Record], baseline: dict[int | None, Record]) -> UtilityRow:
    first = group[0]
    # The reference itself has no change: a row of zeros would look like a measurement.
    same = first.defense in {record.defense for record in baseline.values()}
    changes = [
        _value(record) - _value(baseline[record.seed])
        for record in _measured(group)
        if record.seed in baseline and not same
    ]
    return UtilityRow(
        **shared(first, "federation", "defense", "control", "metric", "direction"),
        pooled=_pooled(group),
        change=mean_over_seeds(changes, limits=(-1.0, 1.0) if is_share(first) else (-math.inf, math.inf))
        if changes
        else None,
        missing=len(group) - len(_measured(group)),
    )


def omission_rows(folder: RunFolder) -> list[OmissionRow]:
    """Return what was not measured, with the reasons: what failed comes first, then what was unavailable or skipped."""
    order = folder.order
    omitted = [record for record in folder.rows() if record.status != "ok"]
    groups = grouped(omitted, "status", "attack", "metric", "reason")
    rows = [
        OmissionRow(
            status=group[0].status,
            attacks=(group[0].attack,),
            metrics=(group[0].metric,),
            federations=tuple(sorted({record.federation for record in group}, key=order.federation)),
            defenses=tuple(sorted({record.defense for record in group}, key=order.defense)),
            # "Every defense" would be misleading in a run that has only one.
            everywhere=len(order.defenses) > 1 and {record.defense for record in group} == set(order.defenses),
            rows=len(group),
            reason=group[0].reason or "no reason was recorded",
        )
        for group in groups
    ]
    rows.sort(
        key=lambda row: (
            WORST_FIRST.index(row.status),
            order.attack(row.attacks[0]),
            metric_place(row.metrics[0]),
            row.reason,
        )
    )
    # Metrics first: attacks are joined only if they lack the same metrics, so that each pair in a row was not measured.
    return _joined(_joined(rows, "metrics"), "attacks")


def _joined(rows: Iterable[OmissionRow], field: str) -> list[OmissionRow]:
    """Join rows that differ in ``field`` and in the number of results only."""
    kept: dict[OmissionRow, OmissionRow] = {}
    for row in rows:
        cleared: dict[str, Any] = {field: ()}
        key = replace(row, rows=0, **cleared)
        before = kept.get(key)
        merged: dict[str, Any] = {} if before is None else {field: getattr(before, field) + getattr(row, field)}
        kept[key] = replace(row, rows=row.rows + (before.rows if before else 0), **merged)
    return list(kept.values())


def undefended(defenses: Iterable[str]) -> str | None:
    """Return the label that the suite gives to the federation without a defense, such as ``none`` or, where each
    federation has one of its own, ``device_none``; None if the suite lists none.
    """
    present = sorted(set(defenses))
    named = (*(label for label in UNDEFENDED if label in present), *(one for one in present if one.endswith("_none")))
    return next(iter(named), None)


def _measured(group: Iterable[Record]) -> list[Record]:
    return [record for record in group if record.status == "ok" and record.value is not None]


def _pooled(group: list[Record]) -> Pooled | None:
    measured = _measured(group)
    if not measured:
        return None
    only = measured[0]
    # A single measurement has no variance over seeds, but may have its own interval.
    if len(measured) == 1 and only.ci_low is not None and only.ci_high is not None:
        over, limits = "the units of one run", range_of(only)
        # A t interval over few units may leave the metric's range, where no true value lies.
        low, high = max(only.ci_low, limits[0]), min(only.ci_high, limits[1])
        one = Pooled(value=_value(only), low=low, high=high, n=1, method=only.ci_method, over=over, limits=limits)
        count = _count(measured)
        return one if count is None else replace(one, at_level=partial(exact_ends, count.right, count.units))
    # Sorted, because the order of rows in the file is arbitrary and would change the last digit of a sum.
    values = sorted(_value(record) for record in measured)
    if only.scope == "record":
        return replace(median_over_images(values), limits=range_of(only))
    count = _count(measured) if values[0] == values[-1] else None
    if count is not None:
        return count_over_seeds(count.right, count.units, seeds=len(values), kind=count.kind)
    return mean_over_seeds(values, share=is_share(only), limits=range_of(only))


def _count(measured: list[Record]) -> Count | None:
    """What the rows of all seeds count together; None unless each is a share of independent units of one kind."""
    kinds = {found[1] if (found := _COUNTED.fullmatch(record.ci_method)) else "" for record in measured}
    right = [_value(record) * (record.n or 0) for record in measured]
    if len(kinds) != 1 or kinds == {""} or any(not record.n for record in measured):
        return None
    if any(abs(one - round(one)) > _ROUNDING for one in right):
        return None
    return Count(right=sum(map(round, right)), units=sum(record.n or 0 for record in measured), kind=kinds.pop())


def _chance(measured: list[Record]) -> float | None:
    stated = [float(found[1]) for record in measured if (found := _CHANCE.search(record.unit))]
    return sum(sorted(stated)) / len(stated) if stated else None


def _value(record: Record) -> float:
    if record.value is None:
        raise ValueError(f"the result row of cell {record.cell_id} must have a value for {record.metric}, got none")
    return record.value


@dataclass(frozen=True, kw_only=True)
class GridLine:
    """A line of the table of attacks: one attack and metric, with one entry per defense.

    ``first``: one of its rows, which all name the same attack, metric, direction and observer. A cell is None where no
    row exists. Where the attack failed or was skipped, the cell holds the row with that status.
    """

    first: AttackRow
    cells: tuple[AttackRow | None, ...]

    @property
    def sizes(self) -> str:
        """The number of values behind each entry of the line; if entries differ, the smallest and the largest
        number.
        """
        sizes = [cell.pooled.n for cell in self.cells if cell and cell.pooled]
        if not sizes:
            return "0"
        return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)}–{max(sizes)}"

    @property
    def over(self) -> str:
        """A phrase that names the repetitions over which the line's confidence intervals hold, such as ``over 3
        seeds``; empty without intervals.
        """
        kinds = dict.fromkeys(cell.pooled.over for cell in self.cells if cell and cell.pooled and cell.pooled.over)
        return " or ".join(f"over {kind}" for kind in kinds)

    @property
    def measured(self) -> bool:
        return any(cell and cell.pooled for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class AttackGrid:
    """A table of all attacks and defenses of one federation. Lines without any measured value appear only in the table
    of omissions.
    """

    federation: str
    defenses: tuple[str, ...]
    lines: tuple[GridLine, ...]

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the defenses; controls are marked."""
        controls = {cell.defense for line in self.lines for cell in line.cells if cell and cell.control}
        return tuple(f"{name} (control)" if name in controls else name for name in self.defenses)

    @property
    def primary(self) -> tuple[GridLine, ...]:
        """The lines with each attack's primary metric, one per attack."""
        return tuple(line for line in self.lines if line.first.metric in ATTACK_HEADLINES)


def attack_grids(rows: Sequence[AttackRow]) -> tuple[AttackGrid, ...]:
    """Return one table of attacks and defenses per federation, in the order in which ``rows`` first name the
    federations.
    """
    return tuple(_grid(name, group) for name, group in gathered((row.federation, row) for row in rows).items())


def _grid(federation: str, rows: Sequence[AttackRow]) -> AttackGrid:
    found: dict[tuple[str, str, str], dict[str, AttackRow]] = {}
    for row in rows:
        found.setdefault((row.attack, row.observer, row.metric), {})[row.defense] = row
    # An attack may skip a defense, so no single line lists all of them.
    defenses = tuple(dict.fromkeys(row.defense for row in sorted(rows, key=lambda row: row.defense_place)))
    omitted = {(row.attack, row.observer, row.defense): row for row in rows if row.metric == WHOLE_CELL}
    lines = (
        GridLine(
            first=next(iter(line.values())),
            # A cell that failed as a whole has no row of this metric, so its only row stands in for it.
            cells=tuple(line.get(defense) or omitted.get((attack, observer, defense)) for defense in defenses),
        )
        for (attack, observer, _), line in found.items()
    )
    return AttackGrid(federation=federation, defenses=defenses, lines=tuple(line for line in lines if line.measured))
