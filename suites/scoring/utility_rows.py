"""Compute the final model's metrics on test data, and store their values round by round."""

from torch import Tensor

from ...fl.recorder import NumbersRecorder, UtilityRecorder, by_round
from ...fl.task import Task
from ..jobs.cell import Cell
from ..results.record import NUMBERS, ROUNDS, Record
from ..results.store import Store


def utility_rows(
    cell: Cell, task: Task, final: Tensor, course: UtilityRecorder, numbers: NumbersRecorder, store: Store
) -> list[Record]:
    """Build one result row per utility metric (such as test accuracy) of the final model, given by its weights ``final
    (d,)``.

    Their artifact is a CSV file with the first metric and the loss by round, whose last values are the final model's.
    The protection's public numbers by round, if any, are a file of their own.
    """
    found = task.utility(final)
    # The curve is recorded at some rounds only, and its last point must agree with the row.
    curve = dict(course.rows) | {numbers.plan.rounds: by_round(found)}
    names = found[0].metric, found[-1].metric
    lines = [
        ",".join([f"{number}", *(repr(values[name]) if name in values else "" for name in names)])
        for number, values in curve.items()
    ]
    artifact = store.save_text(cell.cell_id, ROUNDS, "\n".join([",".join(["round", *names]), *lines]) + "\n")
    if numbers.rows[0][1]:  # Most protections make no numbers public.
        rows = [",".join(map(repr, (number, *values.values()))) for number, values in numbers.rows]
        header = ["round", *numbers.rows[0][1]]
        store.save_text(cell.cell_id, NUMBERS, "\n".join([",".join(header), *rows]) + "\n")
    return [
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
