"""Compute how good the models of a federation, or of a transfer, are on test data, at the end and round by round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...audit.claim import Claim
from ...fl.hooks import Recorder
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import NumbersRecorder, RoundEvent, TrafficRecorder, UtilityRecorder, by_round
from ...fl.task import Task
from ...fl.transfer.recorder import TransferEvent
from ...fl.transfer.task import TransferTask
from ...fl.utility import Spread, spread_of, utility_of
from ..results.cell import Cell
from ..results.record import NUMBERS, ROUNDS, Record
from ..results.store import Store
from .label_rows import csv_by_round, mean_interval

WORST_CLIENTS = 0.1
"""Share of the clients whose mean utility is reported as that of the worst clients (Li et al. 2020)."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """The data recorded during a training for its result rows: utility and public numbers by round, and the bytes
    sent.
    """

    utility: UtilityRecorder
    numbers: NumbersRecorder
    traffic: TrafficRecorder

    @classmethod
    def of(cls, task: Task, plan: Plan, protection: Protection) -> "Course":
        """Return the recorders for a training that has not begun."""
        return cls(
            utility=UtilityRecorder(task=task, every=plan.marks[0]),
            # About 200 points are enough for a figure, and keep the file of a run of 10,000 rounds small.
            numbers=NumbersRecorder(protection=protection, plan=plan, every=max(1, plan.rounds // 200)),
            traffic=TrafficRecorder(),
        )

    @property
    def recorders(self) -> tuple[Recorder[RoundEvent], ...]:
        """All recorders, which receive the events of the training."""
        return self.utility, self.numbers, self.traffic

    @property
    def content(self) -> dict[str, Any]:
        """Everything recorded so far, as plain data."""
        return {"utility": self.utility.rows, "numbers": self.numbers.rows, "traffic": asdict(self.traffic)}

    def restore(self, content: Mapping[str, Any]) -> None:
        """Continue from the ``content`` of an earlier session."""
        self.utility.rows, self.numbers.rows = content["utility"], content["numbers"]
        # Content without these counts leaves too few rounds, and the rows of bytes name this as their reason.
        for name, count in content.get("traffic", {}).items():
            setattr(self.traffic, name, count)


def utility_rows(cell: Cell, task: Task, final: Tensor, course: Course, store: Store) -> list[Record]:
    """Build the result rows of one training, whose final model has the weights ``final (d,)``. They state the model's
    utility, how unequally utility falls on classes and clients, and the bytes that clients sent and received.

    Their artifact is a CSV file with the first metric and the loss by round, whose last values are the final model's.
    The protection's public numbers by round, if any, are a file of their own.
    """
    numbers = course.numbers
    outcomes = task.outcomes(final, task.test_images, task.test_labels)
    found = utility_of(outcomes)
    # The curve is recorded at some rounds only, and its last point must agree with the row.
    curve = dict(course.utility.rows) | {numbers.plan.rounds: by_round(found)}
    artifact = store.save_text(cell.cell_id, ROUNDS, csv_by_round(curve))
    if numbers.rows[0][1]:  # Most protections make no numbers public.
        store.save_text(cell.cell_id, NUMBERS, csv_by_round(dict(numbers.rows)))
    rows = [
        _measured(
            cell, one.metric, one.value, one.reason, n=one.n, unit=one.unit, direction=one.direction, artifact=artifact
        )
        for one in found
    ]
    name = found[0].metric
    classes, clients = task.utility_by_class(outcomes), task.utility_by_client(final)
    if len(classes):  # A regression and a text have no classes.
        rows += _spread_rows(cell, f"class_{name}", spread_of(classes), "worst class", artifact)
    rows += _spread_rows(cell, f"client_{name}", spread_of(clients, WORST_CLIENTS), "worst 10 % of clients", artifact)
    return [*rows, *_traffic_rows(cell, course.traffic, numbers.plan.rounds, artifact)]


def _measured(cell: Cell, metric: str, value: float | None, reason: str, **fields: Any) -> Record:
    """A row; it is skipped where nothing was measured, for this reason."""
    return cell.record(metric=metric, value=value, status="skipped" if value is None else "ok", reason=reason, **fields)


def _spread_rows(cell: Cell, name: str, spread: Spread | None, worst: str, artifact: str) -> list[Record]:
    """Three rows: the worst groups, the mean over groups, and the standard deviation over them."""
    parts = {"worst": (worst, "higher_better"), "mean": ("mean over", "higher_better")}
    parts["std"] = ("standard deviation over", "lower_better")
    groups = "classes" if name.startswith("class_") else "clients"
    return [
        _measured(
            cell,
            f"{name}_{part}",
            getattr(spread, part) if spread else None,
            "" if spread else f"the metric is not defined on any of the {groups}",
            n=spread.groups if spread else 0,
            unit=words if part == "worst" else f"{words} {groups}",
            direction=direction,
            artifact=artifact,
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
                _measured(
                    cell,
                    f"bytes_{way}_{part}",
                    total / count if defined else None,
                    "" if defined else _no_traffic(complete),
                    n=messages if part == "client" else rounds,
                    unit="bytes",
                    direction="lower_better",
                    artifact=artifact,
                )
            )
    return records


def _no_traffic(complete: bool) -> str:
    if complete:
        return "no client took part in any round"
    return "the training was resumed from a checkpoint that did not count bytes"


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
    found = mean_interval(values, over="students of the same teachers")
    return found.row(cell, metric, n=len(values), unit=unit, direction=direction)


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
