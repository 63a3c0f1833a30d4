"""Compare guessed columns of records, and shares of groups, with the truth and with what public records alone say."""

import numpy as np

from ...attacks.attributes.attribute_attack import imputed
from ...audit.evidence import AttributeScores, CandidateScores, PropertyEstimates
from ...fl.candidates import Column, PlantedRecords
from ...fl.task import Task
from ..results.cell import Cell
from ..results.record import Record
from ..results.store import Store
from .label_rows import Interval, hits, mean_interval
from .membership_rows import counted_scores, setting_arrays, wilson

_RECORDS = "records of one run"


def score_attributes(
    cell: Cell, evidence: AttributeScores, planted: PlantedRecords, task: Task, store: Store
) -> list[Record]:
    """Build the result rows of an attack on one column of the clients' records. Each row has an interval over the
    records of this one run, which share its noise.

    ``attribute_over_imputation``: the share of members whose value has the highest score, minus that share of the
    imputation, which uses no message of the federation. ``attribute_accuracy``, ``attribute_imputed`` and
    ``attribute_majority``: the shares themselves, the last one for guessing the public majority. ``attribute_gain``:
    the share among members minus that among records that no client trained on (Yeom et al. 2018, Definition 6), of
    which the claims of a defense are upper bounds.

    Raises:
        ValueError: unless there is one score per record and value, or one per client, record and value.
    """
    k, records = len(planted.shown.column), planted.records
    count = len(planted.value)
    sets = len(evidence.values) // count
    if evidence.values.shape not in ((count, k), (count * len(records.shown.clients), k)):
        raise ValueError(
            f"attribute scores must have shape (records, values) = {(count, k)}, or one row per client and record, got "
            f"{evidence.values.shape}"
        )
    credit = hits(evidence.values, np.tile(planted.value, sets))
    found = counted_scores(CandidateScores(credit, evidence.setting), records)
    right, member, who = found.scores.values, found.member, found.candidate
    public = task.test_images, task.test_labels
    guessed = hits(imputed(planted.shown, *public, classes=task.network.classes), planted.value)
    shares = np.bincount(planted.shown.column.of_records(public[0]).numpy(), minlength=k)
    common = planted.value == shares.argmax()
    inside = who[member]
    rows = {
        "attribute_over_imputation": mean_interval(right[member] - guessed[inside], over=_RECORDS),
        "attribute_accuracy": _share(right[member]),
        "attribute_imputed": _share(guessed[inside]),
        "attribute_majority": _share(common[inside]),
    }
    if not member.all():
        rows["attribute_gain"] = _difference(right[member], _by_record(right[~member], who[~member]))
    arrays = {"right": right, "member": member, "record": who, **setting_arrays(evidence.setting)}
    artifact = store.save_arrays(cell.cell_id, "scores", arrays)
    units = {"attribute_accuracy": f"share of records, chance {1 / k:.3g}"}
    return [
        cell.record(
            metric=metric,
            **one.fields,
            n=int(member.sum()),
            unit=units.get(metric, "share of records"),
            direction="higher_leaks",
            artifact=artifact,
        )
        for metric, one in rows.items()
    ]


def _share(right: np.ndarray) -> Interval:
    mean = float(right.mean())
    low, high = wilson(mean, len(right))
    return Interval(value=mean, low=low, high=high, method=f"wilson, {_RECORDS}")


def _by_record(right: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Each record's mean: one that is scored at several clients is still one."""
    times = np.bincount(who)
    return (np.bincount(who, weights=right) / np.maximum(times, 1))[times > 0]


def _difference(inside: np.ndarray, outside: np.ndarray) -> Interval:
    value = float(inside.mean() - outside.mean())
    if min(len(inside), len(outside)) < 2:
        return Interval(value=value)
    half = 1.96 * float(np.sqrt(inside.var(ddof=1) / len(inside) + outside.var(ddof=1) / len(outside)))
    ends = (value - half, value + half) if half else (None, None)
    return Interval(value=value, low=ends[0], high=ends[1], method=f"95 % normal, {_RECORDS}")


def score_properties(cell: Cell, evidence: PropertyEstimates, task: Task, store: Store) -> list[Record]:
    """Build the result rows of estimates of the share of a group in each client's data, with intervals over clients.

    ``property_gain``: the part of the squared error of the public share that the estimates remove: 0 is as good as the
    public share, 1 exact, and less than 0 worse. ``property_error``, ``property_public_error``: the mean absolute error
    of the estimates and of the public share. ``property_order``: the share of pairs of clients with different shares
    whose order the estimates get right, .5 by chance.

    Raises:
        ValueError: unless there is one estimate per client.
    """
    if evidence.values.shape != (task.clients,):
        raise ValueError(f"there must be one estimate for each of {task.clients} clients, got {evidence.values.shape}")
    column = Column.of(task.test_images, task.columns, evidence.column)
    group = [(column.of_records(task.images[part]) == evidence.value).double().mean() for part in task.parts]
    truth, public = np.array(group), float((column.of_records(task.test_images) == evidence.value).double().mean())
    errors, others = evidence.values - truth, public - truth
    rows = {
        "property_error": (mean_interval(np.abs(errors), over="clients"), "share of records", "lower_leaks"),
        "property_public_error": (mean_interval(np.abs(others), over="clients"), "share of records", "lower_leaks"),
    }
    if others.any():
        gain = (others**2 - errors**2) / np.mean(others**2)
        rows["property_gain"] = mean_interval(gain, over="clients"), "share of the squared error", "higher_leaks"
    apart = truth[:, None] > truth
    if apart.any():
        ahead = np.sign(evidence.values[:, None] - evidence.values)[apart]
        rows["property_order"] = Interval(value=float((1 + ahead.mean()) / 2)), "share of pairs", "higher_leaks"
    arrays = {"estimates": evidence.values, "shares": truth, **setting_arrays(evidence.setting)}
    artifact = store.save_arrays(cell.cell_id, "scores", arrays)
    return [
        cell.record(metric=metric, **one.fields, n=task.clients, unit=unit, direction=direction, artifact=artifact)
        for metric, (one, unit, direction) in rows.items()
    ]
