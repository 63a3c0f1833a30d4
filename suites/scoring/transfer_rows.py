"""Measure how good the teachers, the released labels and the students of a transfer are, and what was released."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from ...audit.claim import Claim
from ...fl.transfer.recorder import TransferEvent
from ...fl.transfer.transfer_task import TransferTask
from ..jobs.cell import Cell
from ..results.record import Record
from .labels import mean_interval

_OVER = "95 % t over students of the same teachers"


def transfer_rows(cell: Cell, task: TransferTask, event: TransferEvent, claims: Sequence[Claim]) -> list[Record]:
    """Build the result rows of a transfer, each a mean over its runs (students), with an interval over them.

    ``accuracy``: of the student on the test samples. ``teacher_accuracy``: share of queries that a teacher votes for
    correctly, mean over teachers. ``answered``: share of queries with a released label. ``released_accuracy``: share of
    these labels that are true, over the runs that released one. ``epsilon_spent_client`` (or another unit):
    what the labels or answers of all queries cost. Numbers that are published with the labels have their own name.
    """
    labels = event.released.labels
    right = (event.logits[0].argmax(-1) == task.public_labels).double().mean(1).numpy()
    true = task.accuracy(labels).numpy()
    rows = [
        _row(cell, "accuracy", _tested(task, event.final_model), "share of test samples", "higher_better"),
        cell.record(
            metric="teacher_accuracy",
            value=float(right.mean()),
            n=len(right),
            unit="share of queries",
            direction="higher_better",
        ),
        _row(cell, "answered", task.answered(labels).numpy(), "share of queries", "higher_better"),
    ]
    if np.isfinite(true).any():
        kept = true[np.isfinite(true)]
        rows.append(_row(cell, "released_accuracy", kept, "share of released labels", "higher_better"))
    # Only one number per run is a row; an array has no mean that means anything.
    for name, number in event.released.numbers.items():
        if number.ndim == 1:
            rows.append(_row(cell, name, number.double().numpy(), "", ""))
    # Two claims about one unit differ in what their observers receive; one of them is enough for a row.
    return [*rows, *{claim.unit: _spent(cell, claim) for claim in reversed(claims)}.values()]


def _tested(task: TransferTask, models: Tensor) -> np.ndarray:
    """The accuracy of each student on the test samples, ``(R,)``."""
    images, labels, network = task.task.test_images, task.task.test_labels, task.task.network
    found = [(network.evaluated(model, images).argmax(-1) == labels).double().mean() for model in models]
    return np.array([float(one) for one in found])


def _row(cell: Cell, metric: str, values: np.ndarray, unit: str, direction: str) -> Record:
    found = mean_interval(values)
    found = replace(found, method="" if found.low is None else _OVER)
    return cell.record(metric=metric, **found.fields, n=len(values), unit=unit, direction=direction)


def _spent(cell: Cell, claim: Claim) -> Record:
    # An epsilon is never written without its unit, adjacency, observer and delta.
    return cell.record(
        metric=f"epsilon_spent_{claim.unit.value}",
        value=claim.epsilon,
        claim_id=claim.claim_id,
        observer=str(claim.observer),
        reason=claim.describe(),
        unit="epsilon",
        direction="higher_leaks",
    )
