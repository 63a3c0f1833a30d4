"""Compare labels and columns that an attack inferred about people of a vertical federation with the truth."""

from dataclasses import replace

import numpy as np

from ...audit.evidence import PersonColumns, PersonLabels
from ...audit.metrics import ScoresByRun, area_interval
from ...fl.vertical.task import People
from ..jobs.cell import Cell
from ..results.record import Record
from .labels import Interval, mean_interval, rate_interval


def score_person_labels(cell: Cell, evidence: PersonLabels, people: People) -> list[Record]:
    """Build the result rows of an attack on labels, with intervals over the people of the training, given its noise.

    ``label_accuracy`` is the share of people whose label has the highest score; ``label_over_chance`` the mean of the
    classes' shares, rescaled so that a guess without information scores 0 and a perfect attack 1; ``label_auc``, of
    two classes, the area under the ROC curve of the second class. Raises ValueError for other people or classes.
    """
    if evidence.people.min() < 0 or evidence.people.max() >= len(people):
        raise ValueError(
            f"people must be in 0..{len(people) - 1}, got {evidence.people.min()}..{evidence.people.max()}"
        )
    truth, scores = people.labels.numpy()[evidence.people], evidence.scores
    if truth.max() >= scores.shape[1]:
        raise ValueError(f"scores must have one column per class, got {scores.shape[1]} for class {truth.max()}")
    right = scores.argmax(1) == truth
    rows = {
        "label_over_chance": (_over_chance(right, truth), "share of the largest possible gain over chance"),
        "label_accuracy": (rate_interval(right), "share of people"),
    }
    if scores.shape[1] == 2 and len(np.unique(truth)) == 2:
        margin = scores[:, 1] - scores[:, 0]
        found = area_interval(ScoresByRun.of(margin[truth == 1], margin[truth == 0]))
        rows["label_auc"] = (Interval(value=found.value, low=found.low, high=found.high, method=found.method), "")
    return [_row(cell, metric, found, unit, len(truth), "higher_leaks") for metric, (found, unit) in rows.items()]


def _over_chance(right: np.ndarray, truth: np.ndarray) -> Interval:
    """The balanced accuracy, rescaled; each person weighs as much as all people of its class have in common."""
    classes, counts = np.unique(truth, return_counts=True)
    if len(classes) < 2:
        return Interval(value=0.0, method="all people have one label, so there is nothing to infer")
    weights = 1 / counts[np.searchsorted(classes, truth)]
    found = mean_interval(right.astype(np.float64), weights).over_chance(1 / len(classes))
    return replace(found, method="95 % t over people")


def score_person_columns(cell: Cell, evidence: PersonColumns, people: People) -> list[Record]:
    """Build the result rows of an attack on columns: ``column_mse`` is the mean squared error of all columns, and
    ``column_error`` the same divided by that of guessing each column's true mean over the people, which scores 1.

    Raises ValueError for another party, other people or another number of columns.
    """
    if not 0 <= evidence.party < len(people.columns):
        raise ValueError(f"party must be in 0..{len(people.columns) - 1}, got {evidence.party}")
    truth = people.columns[evidence.party].numpy()[evidence.people]
    if truth.shape != evidence.rows.shape:
        raise ValueError(f"rows must have shape {truth.shape}, got {evidence.rows.shape}")
    errors = np.square(evidence.rows - truth).mean(1)
    spread = float(np.square(truth - truth.mean(0)).mean())
    found = mean_interval(errors)
    rows = [_row(cell, "column_mse", found, "squared unit of the columns", len(truth), "lower_leaks")]
    if spread > 0:
        low, high = (None if end is None else end / spread for end in (found.low, found.high))
        scaled = Interval(value=found.value / spread, low=low, high=high, method=found.method)
        rows.insert(0, _row(cell, "column_error", scaled, "share of the columns' variance", len(truth), "lower_leaks"))
    return rows


def _row(cell: Cell, metric: str, found: Interval, unit: str, n: int, direction: str) -> Record:
    method = found.method.replace("over uploads", "over people")
    found = replace(found, method=method and f"{method} of one training")
    return cell.record(metric=metric, **found.fields, n=n, unit=unit, direction=direction)
