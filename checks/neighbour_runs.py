"""Compares two runs of one training on neighbouring data; the second run receives the noised sums of the first.

Equal seeds and equal noised sums leave the data as the only difference: a replaced record moves each sum that holds it
by two clip norms at most, and no other sum. This is a comparison of equal draws on equal models: from the step on where
either differs, as by records that draw until they are content, nothing is compared.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from ..audit.arrays import FloatArray
from ..audit.check import CLIPPED, NEIGHBOUR, SIZE, CheckResult
from ..audit.claim import Adjacency
from ..audit.finite import SIZES_SHOW
from ..audit.wording import listed
from .training_record import Release, TrainingRecord

_SLACK, _SAME = 1e-3, 1e-6
"""Clip norms that a sum moves by rounding, for each clip norm of its length too; relative difference of factors."""
_REPLACED = 2.0
"""Clip norms by which a sum moves, at most, where one record is replaced by another."""
_UNCLIPPED = 10.0
"""Clip norms by which a long row moves a sum where it is not clipped: the clip of a mean lets it move by two."""
_COMPARED, _FEW = 4096, 4
"""Rows of a lot, at most, that are compared in any order; and the part of a lot that rows of one record stay below."""
_PREPARED: dict[str, Any] = {
    "cause": "the inputs of other records change too, as where features are standardised, scaled or projected by "
    "numbers that were computed from all records",
    "mend": "compute such numbers from public data, or with noise that the claim accounts for",
    "hook": ("preparation of the data",),
}
_WEIGHTED: dict[str, Any] = {
    "cause": "a record changes the gradients of others also in lots that do not contain it, as where weights of the "
    "loss are computed from all records",
    "mend": _PREPARED["mend"],
    "hook": ("loss or model",),
}
_MIXED: dict[str, Any] = {
    "cause": "a record changes the gradients of others only in lots that contain it, as where a layer, the loss or "
    "the preparation of a batch mixes the records of a lot",
    "mend": "compute each input, output and loss from one record alone, without means, ranks or pairs of a lot",
    "hook": ("loss or model",),
}
_NORMED: dict[str, Any] = {"mend": "replace it by a layer of each record alone, such as GroupNorm", "hook": ("model",)}
_EITHER: dict[str, Any] = {
    "cause": "a record changes the gradients of others, by a layer or loss that mixes the records of a lot, or by "
    "numbers that were computed from all records, such as class weights",
    "mend": f"{_MIXED['mend']}; {_PREPARED['mend']}",
    "hook": ("loss or model",),
}
_SEVERAL: dict[str, Any] = {
    "cause": "one record has several gradients in a lot, each of which is clipped on its own",
    "mend": "add up or average all gradients of a record before they are clipped",
}
_OWN: dict[str, Any] = {
    "cause": "no other gradient changes, so that the gradient of this record is not clipped as stated, or enters more "
    "than once",
    "mend": CLIPPED.mend,
}
_ADDED: dict[str, Any] = {
    "cause": "something besides the sum and its noise is added, and follows the data, such as a part of an earlier sum",
    "mend": "release the sum with its noise alone, or count what is added in the sum before the noise",
    "hook": ("noised step",),
}
_CHOSEN: dict[str, Any] = {
    "cause": "which records of a lot enter the sum depends on other records, as where those of the largest losses are "
    "kept",
    "mend": "add up all records of a lot, or choose each by a rule of this record alone or by a coin",
    "hook": ("choice of records",),
}
UNEQUAL = "before they are clipped, while in this run the clipped ones stay equal"
UNREACHED = "a long gradient is not clipped: call watch.lot before the loop computes the norms of its gradients"
_CLIP_NORM = "clip norm"
_SPREAD = 1e-4
"""Relative difference of factors of one run that counts as rounding."""
_EVENTS = 4001
"""Thresholds at which sums of squares are compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplacedRun:
    """A run in which the record numbered ``replaced`` was exchanged for another one, after equal noised sums."""

    replaced: int
    record: TrainingRecord


def sums_on_neighbours(control: TrainingRecord, others: Sequence[ReplacedRun], *, first: TrainingRecord) -> CheckResult:
    """Check that a replaced record moves each sum that contains it by two clip norms at most, and moves no other row or
    sum.

    ``control``: a run on the data of the ``first`` one, with its noised sums. From the step on where its sums differ,
    something else than the data moves them, and nothing is compared. The ``rest`` of its sums, and of those of the
    others, is without the replaced records.
    """
    worst, compared, moved = 0.0, 0, False
    witness, before = "", list[CheckResult]()
    steps = _equal_steps(first, control)
    for other in others:
        pairs = _alike(control, other.record)[:steps]
        if len(pairs) < steps and (found := _others_enter(control, other, step=len(pairs))) is not None:
            return found
        if (found := _others_move(pairs, other.replaced, control.mixing)) is not None:
            if found.passed is False:
                return found
            before.append(found)
        for one, again in pairs:
            if (found := _release_moves(one, again, other.replaced, first=first)) is not None:
                return found
            distance, slack = _distance(one, again, "received"), _slack(one)
            if not math.isfinite(distance):
                continue
            holds = one.ids is None or other.replaced in one.ids
            compared, moved = compared + 1, moved or distance > slack
            if not holds and distance > slack:
                words = f"record {other.replaced} is replaced, and the lot of step {one.step} does not contain it"
                return NEIGHBOUR.failed(words, distance, 0.0, unit="clip norms")
            if distance > _REPLACED + slack:
                words = f"record {other.replaced} is replaced, in the sum of step {one.step}"
                return NEIGHBOUR.failed(words, distance, _REPLACED, unit="clip norms", **_alone(one, again))
            if one.rest is not None and again.rest is not None and _distance(one, again, "rest") > slack:
                words = (
                    f"record {other.replaced} is replaced, and the gradients of other records change in step {one.step}"
                )
                return NEIGHBOUR.failed(words, _distance(one, again, "rest"), 0.0, unit="clip norms")
            if distance >= worst:
                worst = distance
                witness = (
                    f"record {other.replaced} leaves the sum of step {one.step} and another one enters, each with one "
                    "clip norm at most"
                )
    if before:
        return before[0]
    if not compared:
        return NEIGHBOUR.skipped(
            "runs on neighbouring data cannot be compared, because random draws, models or the number of sums differ"
        )
    if not moved:
        return NEIGHBOUR.skipped(
            f"replacing a record moved none of {compared} sums that could be compared (finite, of equal draws and "
            "models) by more than rounding: none holds the record, its gradients are short next to the clip norm, or "
            "the training does not read the given data"
        )
    words = f"{witness}; {compared} sums of {len(others)} runs were compared"
    return NEIGHBOUR.passes(words, worst, _REPLACED, unit="clip norms")


def _release_moves(one: Release, again: Release, replaced: int, *, first: TrainingRecord) -> CheckResult | None:
    """Return a failed result if equal sums and equal draws make different releases. Otherwise return None, as for noise
    that no seed repeats in a run on equal data.
    """
    if one.own is None or again.own is None or one.received is None or again.received is None:
        return None
    same = torch.equal(one.received, again.received) and torch.equal(one.own, first.releases[one.step].released)
    distance = _distance(one, again, "own")
    if not same or not distance > _slack(one):
        return None
    words = f"record {replaced} is replaced, and the sum of step {one.step} and all draws are equal"
    return NEIGHBOUR.failed(f"{words}, but the noised sum changes", distance, 0.0, unit="clip norms", **_ADDED)


def _others_move(pairs: Sequence[tuple[Release, Release]], replaced: int, mixing: Sequence[str]) -> CheckResult | None:
    """Return a failed result if further gradients change than that of the replaced record, with the cause that inputs,
    lots and layers show. Return a skipped result if this is so before they are clipped only. Otherwise return None.
    """
    for clipped in (True, False):
        known = [(pair, places) for pair in pairs if (places := _changed(*pair, clipped=clipped)) is not None]
        found = [
            (one, again, len(places)) for (one, again), places in known if len(places) > _own(one, places, replaced)
        ]
        if not found:
            continue
        one, _, most = max(found, key=lambda each: each[2])
        own = int(one.ids is None or replaced in one.ids)
        words = (
            f"{most} of {one.rows} gradients of the lot change where one record is replaced, at most {own} may (record "
            f"{replaced}, step {one.step})"
        )
        why = _cause(found, known, replaced)
        if mixing and why in (_MIXED, _EITHER):
            why = _NORMED | {"cause": f"{listed(mixing)} computes with all records of a lot"}
        if not clipped:
            return NEIGHBOUR.skipped(f"{words} {UNEQUAL}: {why['cause']}")
        return NEIGHBOUR.failed(words, **why)
    return None


def _others_enter(control: TrainingRecord, other: ReplacedRun, *, step: int) -> CheckResult | None:
    """Return a failed result if, in the first step whose lots differ, records other than the replaced one enter or
    leave the sum. Their rows show it too: numbers of records alone may be those of other records.
    """
    if len(other.record.releases) <= step or not _equal_draws(control, other.record, step):
        return None
    one, again = control.releases[step], other.record.releases[step]
    moves, count = [], 0
    for here, there, how in ((one, again, "leave"), (again, one, "enter")):
        if here.ids is None or there.ids is None:
            return None
        names = sorted((Counter(here.ids) - Counter(there.ids)).keys() - {other.replaced})
        if (places := _changed(here, there)) is not None and {here.ids[place] for place in places} & {*names}:
            count += len(names)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            moves.append(f"record {names[0]}{more} {how if more else how + 's'} the sum")
    if not moves:
        return None
    words = f"record {other.replaced} is replaced, and {' and '.join(moves)} of step {step}"
    return NEIGHBOUR.failed(words, count, 0, unit="further records", **_CHOSEN)


def _own(one: Release, places: Sequence[int], replaced: int) -> int:
    """How many of the rows that changed are of the replaced record; one at most where lots are not known."""
    return 1 if one.ids is None else sum(one.ids[place] == replaced for place in places)


def _cause(
    found: Sequence[tuple[Release, Release, int]], known: Sequence[tuple[Any, Any]], replaced: int
) -> dict[str, Any]:
    """The cause of gradients of others that change, as the runs show it."""
    one, again, most = max(found, key=lambda each: each[2])
    if one.ids is None and _FEW * most <= (one.rows or 0):
        return _SEVERAL
    without = [id(step) for (step, _), _ in known if step.ids is not None and replaced not in step.ids]
    there = any(id(step) in without for step, _, _ in found)
    if without and not there:
        return _MIXED
    if one.inputs is not None and again.inputs is not None and len({*one.inputs} - {*again.inputs}) > 1:
        return _PREPARED
    return _WEIGHTED if there else _EITHER


def _alone(one: Release, again: Release) -> dict[str, Any]:
    """What is the cause of a sum that moves too far, if its rows are known: then no other row moves."""
    return {} if _changed(one, again) is None else _OWN


def _changed(one: Release, again: Release, *, clipped: bool = True) -> list[int] | None:
    """The places of the rows of one release, before or after the clip, that the other does not have, in any order; None
    if they are not known, or do not make up the sum.
    """
    if one.marks is None or again.marks is None or one.longest is None:
        return None
    mine, others = one.marks[int(clipped)], again.marks[int(clipped)]
    if not bool(mine.isfinite().all() and others.isfinite().all()):
        return None
    sizes = torch.zeros(1) if clipped or not len(mine) else mine.abs().amax(1)
    near = 2 * (_SLACK + 4 * one.rounding) * (one.clip_norm + sizes)
    if max(len(mine), len(others)) <= _COMPARED:
        moves = torch.cdist(mine, others, p=math.inf).amin(1) if len(others) else mine.abs().amax(1)
    elif one.ids is not None and one.ids == again.ids:
        moves = (mine - others).abs().amax(1)
    else:
        return None
    return [int(place) for place in torch.nonzero(moves > near)]


def renamed(control: TrainingRecord, others: Sequence[ReplacedRun], *, first: TrainingRecord) -> str:
    """Describe how lots name a replaced record if they do not use its index; only lots with this name moved. The result
    is empty if no record appears under another name. Arguments as in ``sums_on_neighbours``.
    """
    steps = _equal_steps(first, control)
    for other in others:
        alike = _alike(control, other.record)[:steps]
        if any(len(_changed(*pair) or ()) > 1 for pair in alike):
            continue  # Gradients of other records move, which is no matter of names.
        held = [frozenset(one.ids or ()) for one, _ in alike]
        moved = [_distance(one, again, "received") > _slack(one) for one, again in alike]
        # A lot that holds the record may stay where it is: the gradients of both records may be short there.
        if all(moved) or all(other.replaced in lot for lot, moves in zip(held, moved, strict=True) if moves):
            continue
        names = sorted(frozenset().union(*held))
        if (name := next((one for one in names if moved == [one in lot for lot in held]), None)) is not None:
            words = f"record {other.replaced} of the data has the index {name} in the lots"
            return f"{words}: name records (in a loop, by watch.lot) by their indices in the given data"
    return ""


def unit_moves(within: TrainingRecord, out: TrainingRecord) -> CheckResult | None:
    """Return a failed result if adding one unit moves a sum by more than one clip norm. Return a skipped result if the
    unit's row is not clipped at all, which another check reports. Otherwise return None. The two runs differ only in
    the unit's row, which is zero in ``out``.
    """
    for one, other in _alike(within, out):
        distance = _distance(one, other, "received")
        if distance > _UNCLIPPED:
            # Rows that are not clipped are found in the sums of the first run.
            return NEIGHBOUR.skipped(UNREACHED)
        if math.isfinite(distance) and distance > 1 + _slack(one):
            words = f"with and without a record of large norm, in the sum of step {one.step}"
            return NEIGHBOUR.failed(words, distance, 1.0, unit="clip norms")
    return None


def _distance(one: Release, other: Release, name: str) -> float:
    """The distance of two sums in clip norms; NaN where a number of theirs is not finite."""
    a, b = getattr(one, name).double(), getattr(other, name).double()
    return float(torch.linalg.vector_norm(b - a)) / one.clip_norm


def _slack(one: Release) -> float:
    """Clip norms that rounding moves a sum by."""
    assert one.received is not None
    length = float(torch.linalg.vector_norm(one.received.double())) / one.clip_norm
    return (_SLACK + 4 * one.rounding) * max(1.0, length)


def _equal_steps(first: TrainingRecord, control: TrainingRecord) -> int:
    """The number of steps until which two runs on equal data made equal sums."""
    alike = _alike(first, control)
    differ = [
        number for number, (one, other) in enumerate(alike) if not _distance(one, other, "received") <= _slack(one)
    ]
    return min([*differ, len(alike)])


def _alike(first: TrainingRecord, other: TrainingRecord) -> list[tuple[Release, Release]]:
    """The steps that both runs made from equal draws on equal models, until one of them differs."""
    found = []
    for step, (one, again) in enumerate(zip(first.releases, other.releases, strict=False)):
        # Where records are known by their numbers, numbers that follow all records hide them.
        named = one.ids is None or again.ids is None or sorted(one.ids) == sorted(again.ids)
        if not _equal_draws(first, other, step) or not named or one.clip_norm != again.clip_norm:
            break
        if one.received is None or again.received is None:
            break
        found.append((one, again))
    return found


def _equal_draws(first: TrainingRecord, other: TrainingRecord, step: int) -> bool:
    """Whether a step of two runs was made from equal draws on equal models."""
    pairs = ((first.drawn, other.drawn), (first.held, other.held))
    return all(a[step : step + 1] == b[step : step + 1] for a, b in pairs)


def moved_setting(first: TrainingRecord, other: TrainingRecord) -> str:
    """Return which of clip norm and noise multiplier differs between two runs, at the first step with a difference;
    empty if neither differs. The difference counts only if draws and models are equal until this step.
    """
    for step, (one, again) in enumerate(zip(first.releases, other.releases, strict=False)):
        for name in ("clip_norm", "noise_multiplier"):
            a, b = getattr(one, name), getattr(again, name)
            if a != b:
                return (
                    f"has the {name.replace('_', ' ')} {b:.6g} instead of {a:.6g} in step {step} of a run on "
                    "other records"
                )
        if not _equal_draws(first, other, step):
            break
    return ""


def size_check(
    first: TrainingRecord, smaller: TrainingRecord, adjacency: Adjacency, *, ends: Collection[str] = ()
) -> CheckResult:
    """Check that nothing depends on the number of records, which differs between neighbours under add/remove.

    ``smaller``: a run without the last record; ``ends``: names of what ended otherwise in it. Under zero-out and
    replace-one the number is public: there the result says what follows it, and what that would cost under add/remove.
    """
    found = _following(first, smaller)
    if ends and not found:
        found = [f"{', '.join(sorted(ends)[:3])} ends with different values, although all noised sums were equal"]
    count = f"with {smaller.population} instead of {first.population} records"
    if not found:
        return SIZE.passes(f"steps, sampling rates, noise and divisors do not change {count}")
    words = f"{count} {'; '.join(found)}"
    if (low := shown_by_size(first, smaller)) > 0:
        words += f"; {SIZES_SHOW}{low:.3g}"
    begins = [one.releases[0].clip_norm for one in (first, smaller) if one.releases]
    if adjacency is Adjacency.ADD_REMOVE and len(found) == 1 and _CLIP_NORM in found[0] and len({*begins}) == 1:
        return SIZE.skipped(f"{words}: it changes within a run, by numbers that may have noise of their own")
    if adjacency is Adjacency.ADD_REMOVE:
        return SIZE.failed(words)
    return SIZE.passes(f"the number of records is public ({adjacency.phrase}): {words}")


def _following(first: TrainingRecord, smaller: TrainingRecord) -> list[str]:
    """What differs between the runs, apart from lots and sums."""
    found = []
    if len(first.releases) != len(smaller.releases):
        found.append(f"a run has {len(smaller.releases)} steps instead of {len(first.releases)}")
    facts = [
        (_CLIP_NORM, [one.clip_norm for one in first.releases], [one.clip_norm for one in smaller.releases]),
        (
            "noise multiplier",
            [one.noise_multiplier for one in first.releases],
            [one.noise_multiplier for one in smaller.releases],
        ),
        ("sampling rate", [rate for _, rate in first.accounted_steps], [rate for _, rate in smaller.accounted_steps]),
        ("factor of the noised sum", first.factors, smaller.factors),
    ]
    for name, values, others in facts:
        for one, other in zip(values, others, strict=False):
            if one is not None and other is not None and not math.isclose(one, other, rel_tol=_SAME):
                found.append(f"the {name} is {other:.6g} instead of {one:.6g}")
                break
    return found


def shown_by_size(first: TrainingRecord, smaller: TrainingRecord) -> float:
    """Return the epsilon with which the lengths of the updates alone reveal the number of records; 0 if they do not
    reveal it.

    Each update is its noised sum times a factor. Who knows the sum without noise compares the noise: its sum of squares
    is a chi-square number times the squared factors, so that one event bounds epsilon from below, at the delta of the
    record.
    """
    pairs = [
        (one, other) for one, other in zip(first.factors, smaller.factors, strict=False) if one and other is not None
    ]
    ratios = np.array([(other / one) ** 2 for one, other in pairs])
    ratio = float(np.median(ratios)) if len(ratios) else 1.0
    if first.delta is None or ratio <= 0 or math.isclose(ratio, 1, rel_tol=_SAME) or np.ptp(ratios) > _SPREAD * ratio:
        return 0.0
    numbers = len(pairs) * first.layout.dim
    spread = np.linspace(-12, 12, _EVENTS) * math.sqrt(2 * numbers)
    cuts = np.concatenate([numbers + spread, ratio * (numbers + spread)])
    cuts = cuts[cuts > 0]
    bounds = []
    for tail in (chi2.logsf, chi2.logcdf):
        one, other = tail(cuts, numbers), tail(cuts / ratio, numbers)
        bounds += [_epsilon(one, other, first.delta), _epsilon(other, one, first.delta)]
    return max(0.0, *bounds)


def _epsilon(likely: FloatArray, rare: FloatArray, delta: float) -> float:
    """The largest log of ``(P - delta) / Q`` over events with logs of probabilities P and Q."""
    known = (likely > math.log(delta)) & np.isfinite(rare)
    if not known.any():
        return 0.0
    less = likely[known] + np.log1p(-np.exp(math.log(delta) - likely[known]))
    return float(np.max(less - rare[known]))
