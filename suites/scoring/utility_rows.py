"""Compute the final model's metrics on test data, and store their values round by round."""

from torch import Tensor

from ...fl.recorder import AccuracyRecorder, NumbersRecorder
from ...fl.task import Task
from ..jobs.cell import Cell
from ..results.record import NUMBERS, ROUNDS, Record
from ..results.store import Store


def utility_rows(
    cell: Cell, task: Task, final: Tensor, course: AccuracyRecorder, numbers: NumbersRecorder, store: Store
) -> list[Record]:
    """Build one result row per utility metric (such as test accuracy) of the final model, given by its weights ``final
    (d,)``.

    Their artifact is a CSV file with the first metric by round, whose last value is the final model's. The protection's
    public numbers by round, if any, are a file of their own.
    """
    found = task.utility(final)
    curve = dict(course.curve)
    # The curve is recorded at some rounds only, and its last point must agree with the row.
    if found[0].value is not None:
        curve[numbers.plan.rounds] = found[0].value
    lines = [f"round,{found[0].metric}", *(f"{number},{value!r}" for number, value in curve.items())]
    artifact = store.save_text(cell.cell_id, ROUNDS, "\n".join(lines) + "\n")
    if numbers.rows[0][1]:  # Most protections make no numbers public.
        rows = [",".join(map(repr, (number, *values.values()))) for number, values in numbers.rows]
        names = ["round", *numbers.rows[0][1]]
        store.save_text(cell.cell_id, NUMBERS, "\n".join([",".join(names), *rows]) + "\n")
    return [
        cell.record(
            metric=one.metric,
            value=one.value,
            n=one.n,
            unit=one.unit,
            direction="higher_better",
            artifact=artifact,
            status="ok" if one.value is not None else "skipped",
            reason=one.reason,
        )
        for one in found
    ]
