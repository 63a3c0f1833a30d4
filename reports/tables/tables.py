"""What a report tabulates, as typed rows in the suite's order: attacks, utility and omissions."""

from collections.abc import Iterable
from dataclasses import dataclass

from ...suites.results.record import Record
from ..reading.order import Order
from ..reading.pooling import Pooled, mean_over_seeds, median_over_images
from ..reading.run_folder import RunFolder, once_a_run
from .numerals import metric_place

UNDEFENDED = ("undefended", "none", "no_defense", "no_protection")
"""Labels under which a suite runs the federation without a defense; the first that is present is the baseline."""
WHOLE_CELL = "none"
"""The metric of a row that stands for a whole cell of which nothing was measured."""
WORST_FIRST = ("failed", "unavailable", "skipped")


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """What one attack got out of one defense. ``pooled`` is None where nothing was measured.

    ``missing``: rows (or whole cells) without a value; ``status`` and ``reason`` of the worst of them, else empty.
    """

    federation: str
    attack: str
    defense: str
    defense_place: int
    null: bool
    control: bool
    observer: str
    metric: str
    direction: str
    pooled: Pooled | None
    missing: int
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class UtilityRow:
    """What one defense costs. ``change``: pooled difference to the undefended federation of the same seeds."""

    federation: str
    defense: str
    control: bool
    metric: str
    pooled: Pooled | None
    change: Pooled | None
    missing: int


@dataclass(frozen=True, kw_only=True)
class OmissionRow:
    """What was not measured: rows of one attack and metric that share a status and a reason."""

    status: str
    attack: str
    metric: str
    federations: tuple[str, ...]
    defenses: tuple[str, ...]
    everywhere: bool
    rows: int
    reason: str

    @property
    def where(self) -> str:
        """The defenses in words."""
        return "every defense" if self.everywhere else ", ".join(self.defenses)


@once_a_run
def pooled_attacks(folder: RunFolder) -> list[AttackRow]:
    """One row per federation, attack, metric and defense, pooled over seeds (and images); null attacks included."""
    order = Order.of(folder)
    records = folder.rows("attack", "null")
    # A cell that failed or was skipped has one row, for all of its metrics.
    omitted: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.status != "ok" and record.metric == WHOLE_CELL:
            omitted.setdefault(_target(record), []).append(record)
    groups = _grouped(records, "federation", "attack", "observer", "metric", "defense")
    rows = [_attack_row(group, order, omitted.get(_target(group[0]), [])) for group in groups]
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


def _target(record: Record) -> tuple[str, str, str]:
    return record.federation, record.attack, record.defense


def _attack_row(group: list[Record], order: Order, omitted_cells: list[Record]) -> AttackRow:
    first = group[0]
    others = [] if first.metric == WHOLE_CELL else omitted_cells
    omitted = sorted([r for r in group if r.status != "ok"] + others, key=lambda r: WORST_FIRST.index(r.status))
    return AttackRow(
        federation=first.federation,
        attack=first.attack,
        defense=first.defense,
        defense_place=order.defense(first.defense),
        null=first.role == "null",
        control=first.control,
        observer=first.observer,
        metric=first.metric,
        direction=first.direction,
        pooled=_pooled(group),
        missing=len(omitted),
        status=omitted[0].status if omitted else "",
        reason=omitted[0].reason if omitted else "",
    )


@once_a_run
def pooled_utility(folder: RunFolder) -> list[UtilityRow]:
    """One row per federation, metric and defense, pooled over seeds, beside the paired change to the undefended run."""
    order = Order.of(folder)
    groups = _grouped(folder.rows("utility"), "federation", "metric", "defense")
    bare = {
        name: undefended(r.defense for r in folder.rows("utility") if r.federation == name)
        for name in order.federations
    }
    baselines = {
        (group[0].federation, group[0].metric): {record.seed: record for record in _measured(group)}
        for group in groups
        if group[0].defense == bare[group[0].federation]
    }
    rows = [_utility_row(group, baselines.get((group[0].federation, group[0].metric), {})) for group in groups]
    return sorted(rows, key=lambda row: (order.federation(row.federation), row.metric, order.defense(row.defense)))


def _utility_row(group: list[Record], baseline: dict[int | None, Record]) -> UtilityRow:
    first = group[0]
    same = first.defense in {record.defense for record in baseline.values()}
    changes = [
        _value(record) - _value(baseline[record.seed])
        for record in _measured(group)
        if record.seed in baseline and not same
    ]
    return UtilityRow(
        federation=first.federation,
        defense=first.defense,
        control=first.control,
        metric=first.metric,
        pooled=_pooled(group),
        change=mean_over_seeds(changes) if changes else None,
        missing=len(group) - len(_measured(group)),
    )


def omission_rows(folder: RunFolder) -> list[OmissionRow]:
    """What was not measured and why: failures first, then what was unavailable, then what was skipped."""
    order = Order.of(folder)
    omitted = [record for record in folder.rows() if record.status != "ok"]
    groups = _grouped(omitted, "status", "attack", "metric", "reason")
    rows = [
        OmissionRow(
            status=group[0].status,
            attack=group[0].attack,
            metric=group[0].metric,
            federations=tuple(sorted({record.federation for record in group}, key=order.federation)),
            defenses=tuple(sorted({record.defense for record in group}, key=order.defense)),
            everywhere=len(order.defenses) > 1 and {record.defense for record in group} == set(order.defenses),
            rows=len(group),
            reason=group[0].reason or "no reason was recorded",
        )
        for group in groups
    ]
    return sorted(
        rows, key=lambda row: (WORST_FIRST.index(row.status), order.attack(row.attack), row.metric, row.reason)
    )


def undefended(defenses: Iterable[str]) -> str | None:
    """The label of the federation without a defense, if the suite runs one."""
    present = set(defenses)
    return next((label for label in UNDEFENDED if label in present), None)


def _grouped(records: Iterable[Record], *fields: str) -> list[list[Record]]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(getattr(record, field) for field in fields), []).append(record)
    return list(groups.values())


def _measured(group: Iterable[Record]) -> list[Record]:
    return [record for record in group if record.status == "ok" and record.value is not None]


def _pooled(group: list[Record]) -> Pooled | None:
    measured = _measured(group)
    if not measured:
        return None
    only = measured[0]
    if len(measured) == 1 and only.ci_low is not None and only.ci_high is not None:
        return Pooled(value=_value(only), low=only.ci_low, high=only.ci_high, n=1, method=only.ci_method)
    # The order of the rows in the file must not reach the last digit of a sum or the draws of a bootstrap.
    values = sorted(_value(record) for record in measured)
    return median_over_images(values) if measured[0].scope == "record" else mean_over_seeds(values)


def _value(record: Record) -> float:
    if record.value is None:
        raise ValueError(f"cell {record.cell_id} has no value for {record.metric}")
    return record.value
