"""Compute the final model's metrics on test data and on the clients' data, and store values round by round."""

from torch import Tensor

from ...fl.recorder import NumbersRecorder, UtilityRecorder, by_round
from ...fl.task import Task
from ...fl.traffic import TrafficRecorder
from ...fl.utility import Spread, spread_of, utility_of
from ..jobs.cell import Cell
from ..results.record import NUMBERS, ROUNDS, Record
from ..results.store import Store

WORST_CLIENTS = 0.1
"""Share of the clients whose mean utility is reported as that of the worst clients (Li et al. 2020)."""


def utility_rows(
    cell: Cell,
    task: Task,
    final: Tensor,
    course: UtilityRecorder,
    numbers: NumbersRecorder,
    traffic: TrafficRecorder,
    store: Store,
) -> list[Record]:
    """Build the result rows of one training, whose final model has the weights ``final (d,)``: its utility, how
    unequally it falls on classes and clients, and the bytes that clients sent and received.

    Their artifact is a CSV file with the first metric and the loss by round, whose last values are the final model's.
    The protection's public numbers by round, if any, are a file of their own.
    """
    outcomes = task.outcomes(final, task.test_images, task.test_labels)
    found = utility_of(outcomes)
    artifact = store.save_text(cell.cell_id, ROUNDS, _by_round(course, numbers.plan.rounds, by_round(found)))
    if numbers.rows[0][1]:  # Most protections make no numbers public.
        store.save_text(cell.cell_id, NUMBERS, _numbers(numbers))
    rows = [
        cell.record(
            metric=one.metric,
            value=one.value,
            n=one.n,
            unit=one.unit,
            direction=one.direction,
            artifact=artifact,
            status="ok" if one.value is not None else "skipped",
            reason=one.reason,
        )
        for one in found
    ]
    name = found[0].metric
    classes, clients = task.utility_by_class(outcomes), task.utility_by_client(final)
    if len(classes):  # A regression and a text have no classes.
        rows += _spread_rows(cell, f"class_{name}", spread_of(classes), "worst class", artifact)
    rows += _spread_rows(cell, f"client_{name}", spread_of(clients, WORST_CLIENTS), "worst 10 % of clients", artifact)
    return [*rows, *_traffic_rows(cell, traffic, numbers.plan.rounds, artifact)]


def _by_round(course: UtilityRecorder, rounds: int, last: dict[str, float]) -> str:
    # The curve is recorded at some rounds only, and its last point must agree with the row.
    curve = dict(course.rows) | {rounds: last}
    names = list(dict.fromkeys(name for values in curve.values() for name in values))
    lines = [
        ",".join([f"{number}", *(repr(values[name]) if name in values else "" for name in names)])
        for number, values in curve.items()
    ]
    return "\n".join([",".join(["round", *names]), *lines]) + "\n"


def _numbers(numbers: NumbersRecorder) -> str:
    rows = [",".join(map(repr, (number, *values.values()))) for number, values in numbers.rows]
    return "\n".join([",".join(["round", *numbers.rows[0][1]]), *rows]) + "\n"


def _spread_rows(cell: Cell, name: str, spread: Spread | None, worst: str, artifact: str) -> list[Record]:
    """Three rows: the worst groups, the mean over groups, and the standard deviation over them."""
    parts = {"worst": (worst, "higher_better"), "mean": ("mean over", "higher_better")}
    parts["std"] = ("standard deviation over", "lower_better")
    groups = "classes" if name.startswith("class_") else "clients"
    return [
        cell.record(
            metric=f"{name}_{part}",
            value=getattr(spread, part) if spread else None,
            n=spread.groups if spread else 0,
            unit=words if part == "worst" else f"{words} {groups}",
            direction=direction,
            artifact=artifact,
            status="ok" if spread else "skipped",
            reason="" if spread else f"the metric is not defined on any of the {groups}",
        )
        for part, (words, direction) in parts.items()
    ]


def _traffic_rows(cell: Cell, traffic: TrafficRecorder, rounds: int, artifact: str) -> list[Record]:
    """Bytes that clients sent (up) and received (down): per client and round, per round, and in the whole training."""
    complete = traffic.rounds == rounds
    records = []
    for way, total, messages in (("up", traffic.up, traffic.reports), ("down", traffic.down, traffic.receipts)):
        for part, count in (("client", messages), ("round", rounds), ("total", 1)):
            defined = complete and count > 0
            records.append(
                cell.record(
                    metric=f"bytes_{way}_{part}",
                    value=total / count if defined else None,
                    n=messages if part == "client" else rounds,
                    unit="bytes",
                    direction="lower_better",
                    artifact=artifact,
                    status="ok" if defined else "skipped",
                    reason="" if defined else _no_traffic(complete),
                )
            )
    return records


def _no_traffic(complete: bool) -> str:
    if complete:
        return "no client took part in any round"
    return "the training was resumed from a checkpoint that did not count bytes"
