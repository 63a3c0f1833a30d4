"""Compare guessed label counts with the labels of the training samples behind each update, as result rows."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.evidence import LabelCounts
from ...fl.plan import Plan
from ...fl.recorder import LotRecorder
from ...fl.task import Task
from ..jobs.cell import Cell
from ..results.record import Record
from .labels import Interval, LabelScores, mean_interval, rate_interval, score_labels


def score_label_counts(
    cell: Cell, evidence: LabelCounts, task: Task, plan: Plan, lots: Mapping[int, LotRecorder]
) -> list[Record]:
    """Build the result rows of one label attack on one round, with confidence intervals over the round's client
    updates.

    One-sample uploads have one row only: all other scores follow from the share of right labels. Raises ValueError
    where there are not as many guesses as uploads.
    """
    truth = true_counts(task, plan, lots, evidence.round)
    # Shapes are compared with the truth, because a part of the user may return anything.
    if truth.shape != evidence.counts.shape:
        raise ValueError(
            f"the attack's label counts must have shape {truth.shape}, with one row per client "
            f"update, got {evidence.counts.shape}"
        )
    scores = score_labels(evidence.counts, truth)
    rows = _rows_of_single_samples(scores) if bool((scores.sizes == 1).all()) else _rows_of_lots(scores)
    return [
        cell.record(
            metric=metric,
            **found.fields,
            n=len(truth),
            unit=unit,
            direction="lower_leaks" if metric in _LOWER else "higher_leaks",
        )
        for metric, (found, unit) in rows.items()
    ]


_LOWER = ("label_count_error", "label_total_variation")


def true_counts(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> FloatArray:
    """Count the true labels of the samples behind each client update of ``round``; array ``(n, classes)`` in the order
    of the n clients that took part; see `lots_of_round`.
    """
    classes = task.network.classes
    rows = [torch.bincount(task.labels[drawn], minlength=classes) for drawn in lots_of_round(task, plan, lots, round)]
    return np.asarray(torch.stack(rows).numpy(), dtype=np.float64)


def lots_of_round(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> list[Tensor]:
    """Return the indices of the samples behind each client update of ``round``, one tensor per client that took part.

    A full lot is the same in each local step and counts once; any other lot counts anew in each step.
    """
    found = []
    for client, part in enumerate(task.parts):
        masks = lots[client].lots[round]
        if masks:  # A client without masks took no part in this round and has no upload.
            steps = masks[:1] if plan.lot.rate(len(part)) == 1 else masks
            # A federation of one replica: the masks of a trial have a leading axis of length one.
            found.append(torch.cat([part[mask[0]] for mask in steps]))
    return found


def _rows_of_single_samples(scores: LabelScores) -> dict[str, tuple[Interval, str]]:
    return {"label_accuracy": (rate_interval(scores.exact), "share of uploads")}


def _rows_of_lots(scores: LabelScores) -> dict[str, tuple[Interval, str]]:
    corrected = scores.over_chance
    rows = {
        "label_accuracy": (mean_interval(scores.accuracy, scores.sizes), "share of labels"),
        "label_exact_rate": (rate_interval(scores.exact), "share of uploads"),
        "label_count_error": (mean_interval(scores.count_error), "samples"),
        "label_total_variation": (mean_interval(scores.total_variation), "probability"),
        "label_class_existence": (mean_interval(scores.existence), "share of classes"),
        "label_count_accuracy": (mean_interval(scores.counted), "share of classes"),
    }
    return (
        rows
        if corrected is None
        else {"label_over_chance": (corrected, "share of the largest possible gain over chance"), **rows}
    )
