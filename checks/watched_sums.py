"""Compares the sum of each release before its noise with the clipped rows that came in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import CLIPPED, CheckResult
from ..audit.wording import listed
from ..fl.laws import clip
from .training_record import Release, TrainingRecord

_SLACK = 1e-3
"""Relative error that counts as rounding: foreign code clips in single precision and adds 1e-6 to norms."""
_COARSE = 0.1
"""Rounding, in clip norms, from which on a sum is not compared."""
_ROUNDED, _CHANCE = 1e-6, 1e-6
"""Relative rounding of a sum in single precision, and the probability with which what rows leave over of a sum is so
short by chance.
"""
_ROWS, _PLAIN = 2048, 3
"""Rows whose weights are solved for, at most; numbers of a sum, at least, that is recognised as one of rows that were
not clipped.
"""
_PLAYED = "a play-back of the step shows how far one record moves it"
_UNCLIPPED = "summed without clipping"
_FOR_THE_LOT = "multiplied by one number for the lot"
_MEND = "clip the gradients of all tensors of a record together to the stated norm, and add them unchanged"
_DIGITS, _IN_SINGLE = 2.0**-6, "compute norms in float32"
"""Relative error, at most, of norms that are computed in bfloat16, of which each number is off by 2^-8; its mend."""
_MODULES = 64
"""Modules, at most, of which each is tried as one that a clip leaves out."""
_ALIKE, _UNLIKE, _PAIRS = 1e-3, 1e-2, 8
"""Relative difference of equal lengths and of unequal weights, and pairs of rows that are compared, at least."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """The norms with which the rows of a lot entered a sum.

    ``expected``: ``(d,)``, the sum of the rows clipped by the stated rule; ``longest``: the largest length in clip
    norms, None where the sum does not determine it; ``explained``: whether the sum is one of weighted rows;
    ``weights``: of a sum that is not that of the stated rule, ``(2, n)``, the length of each row that is not zero
    before, and in the sum, in clip norms; None where they are not known or the rule is the stated one; ``rule``: what
    the sum of each tensor is instead of that of the stated rule, in words, as far as it was recognised; ``kept``:
    ``(n, d)``, the rows clipped by the stated rule.
    """

    expected: Tensor
    longest: float | None
    explained: bool
    weights: FloatArray | None = None
    rule: str = ""
    kept: Tensor | None = None


def contributions(
    rows: Tensor,
    total: Tensor | None,
    clip_norm: float,
    *,
    clipped: Tensor | None = None,
    rounding: float = 0.0,
    tensors: Mapping[str, slice] = MappingProxyType({}),
) -> Contributions:
    """Compare the sum ``total (d,)`` with the ``rows (n, d)`` that should have entered it.

    The stated rule scales each row to ``clip_norm``, or is given as the rows ``clipped (n, d)`` after it. A sum of
    other multiples of the rows is solved for these multiples, where the rows determine them. ``rounding``: of the sum,
    in clip norms. ``tensors``: the slice of each tensor, in which other rules are looked for.
    """
    rows = rows.double()
    kept = clip(rows, clip_norm) if clipped is None else clipped.double()
    expected = kept.sum(0)
    if total is None or _close(total.double(), expected, clip_norm, max(_SLACK, 4 * rounding)):
        longest = float(torch.linalg.vector_norm(kept, dim=1).max()) / clip_norm if len(rows) else 0.0
        return Contributions(expected, longest, True, kept=kept)
    found = replace(_solved(rows, total.double(), expected, clip_norm), kept=kept)
    if not len(rows) or not bool(rows.isfinite().all() and total.isfinite().all()):
        return found
    if rule := _rounded_norms(found.weights):
        return replace(found, rule=rule)
    rule, most = _recognised(rows, kept, total.double(), clip_norm, tensors)
    # A row is as long as its part in the tensors whose rule is known, at least.
    known = most if most > 1 else None
    # What one number scales for a whole lot may be longer in another lot.
    return replace(found, rule=rule, longest=known if found.longest is None or _FOR_THE_LOT in rule else found.longest)


def _rounded_norms(weights: FloatArray | None) -> str:
    """The rule of rows that are clipped by norms of too few digits: each is scaled by nearly the stated factor, and by
    another part of it than others.
    """
    if weights is None or not (long := weights[0] > 1).any():
        return ""
    parts = weights[1] / np.minimum(weights[0], 1.0) - 1
    off = float(np.abs(parts).max())
    if not _SLACK < off < _DIGITS or np.ptp(parts[long]) < off / 2:
        return ""
    return (
        f"gradients are clipped by norms that are off by up to {100 * off:.2g} %, each by another part, as where norms "
        "are computed in bfloat16"
    )


def marks_of(rows: Tensor, kept: Tensor) -> Tensor:
    """Return projections ``(2, n, 3)`` of rows ``(n, d)`` before and after the clip on fixed directions of standard
    deviation 1.
    """
    return torch.stack([rows.double(), kept.double()]) @ _directions(rows.shape[1])


@lru_cache(maxsize=1)
def _directions(dim: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((dim, 3)))


def _close(total: Tensor, expected: Tensor, clip_norm: float, slack: float = _SLACK) -> bool:
    allowed = slack * max(clip_norm, float(torch.linalg.vector_norm(expected)))
    return bool(torch.linalg.vector_norm(total - expected) <= allowed)


def _solved(rows: Tensor, total: Tensor, expected: Tensor, clip_norm: float) -> Contributions:
    """The lengths of the rows in a sum that is not that of the stated rule."""
    lengths, dim = torch.linalg.vector_norm(rows, dim=1), rows.shape[1]
    longer = lengths[lengths > 0]
    if dim >= _PLAIN and _close(total, rows.sum(0), clip_norm):
        return _weighted(expected, longer, longer, clip_norm)
    used = rows[lengths > 0] / longer[:, None]
    if not 0 < len(used) <= min(_ROWS, dim) or not bool(rows.isfinite().all() and total.isfinite().all()):
        return Contributions(expected, None, False)
    weights = torch.linalg.lstsq(used.T, total[:, None], driver="gelsd").solution[:, 0]
    left = float(torch.linalg.vector_norm(used.T @ weights - total))
    explained = left <= _SLACK * max(clip_norm, float(torch.linalg.vector_norm(total)))
    if not explained or (spare := dim - len(used)) == 0:
        return Contributions(expected, None, explained)
    # Of an error of any direction, the numbers that the rows cannot explain show their share: from few of them, an
    # error may hide that the weights of almost parallel rows multiply.
    shown = max(left, _ROUNDED * float(torch.linalg.vector_norm(total)))
    error = shown * _CHANCE ** (-1 / spare) * (dim / spare) ** 0.5
    if error > _UNLIKE * float(weights.abs().max() * torch.linalg.svdvals(used)[-1]):
        return Contributions(expected, None, True)
    return _weighted(expected, longer, weights, clip_norm)


def _weighted(expected: Tensor, lengths: Tensor, weights: Tensor, clip_norm: float) -> Contributions:
    pairs = torch.stack([lengths, weights]).numpy() / clip_norm
    return Contributions(expected, float(np.abs(pairs[1]).max()), True, pairs)


def _recognised(
    rows: Tensor, kept: Tensor, total: Tensor, clip_norm: float, tensors: Mapping[str, slice]
) -> tuple[str, float]:
    """What the sum is: of all tensors by one rule, or of each tensor by its own; and the largest length, in clip norms,
    of a row in the tensors whose rule is known.
    """
    places = {"": slice(0, rows.shape[1])}
    if (found := _rule(rows, kept, total, clip_norm, places[""])) is None:
        for left, factors in _without_modules(rows, clip_norm, tensors):
            if _close(total, (rows * factors).sum(0), clip_norm):
                words = f"the clip leaves out the gradients of {left} when it computes norms"
                return words, float((rows * factors).norm(dim=1).max()) / clip_norm
    if found is not None:
        longest = float(found[1].norm(dim=1).max())
        more = f", or with a clip norm above {longest:.4g}" if found[0] == _UNCLIPPED else ""
        return f"all gradients are {found[0]}{more}", longest / clip_norm
    alike: dict[str, list[str]] = {}
    squares = torch.zeros(len(rows), dtype=torch.float64)
    for name, place in tensors.items():
        if _close(total[place], kept[:, place].sum(0), clip_norm):
            squares += kept[:, place].square().sum(1)
        elif (own := _rule(rows, kept, total, clip_norm, place)) is not None:
            squares += own[1].square().sum(1)
            alike.setdefault(own[0], []).append(name)
    alone = _alone(clip_norm)
    for name in list(alike.get(_UNCLIPPED, ())) if alone in alike else ():
        # A clip of the tensor alone leaves short gradients as they are.
        if float(rows[:, tensors[name]].norm(dim=1).max()) <= clip_norm:
            alike[alone].append(name)
            alike[_UNCLIPPED].remove(name)
    alike = {how: names for how, names in alike.items() if names}
    words = "; ".join(f"the gradients of {listed(names)} are {how}" for how, names in alike.items())
    return words, float(squares.max()) ** 0.5 / clip_norm


def _rule(rows: Tensor, kept: Tensor, total: Tensor, clip_norm: float, place: slice) -> tuple[str, Tensor] | None:
    """The rule, in words, by which the rows make a tensor's part of the sum, and the rows ``(n, d)`` after it."""
    own, stated, seen = rows[:, place], kept[:, place], total[place]
    if _close(seen, own.sum(0), clip_norm):
        return _UNCLIPPED, own
    alone = clip(own, clip_norm)
    if _close(seen, alone.sum(0), clip_norm):
        return _alone(clip_norm), alone
    if len(seen) < _PLAIN:
        return None  # One free number explains them.
    for values, words in (
        (stated, "multiplied by {:.4g} after the clip"),
        (own, f"{_FOR_THE_LOT}, {{:.4g}}, and not clipped one by one"),
    ):
        of = values.sum(0)
        factor = float(of @ seen) / max(float(of @ of), 1e-300)
        if _close(seen, factor * of, clip_norm):
            return words.format(factor), factor * values
    return _other_norm(own, torch.linalg.vector_norm(rows, dim=1, keepdim=True), seen, clip_norm)


def _alone(clip_norm: float) -> str:
    return f"clipped to norm {clip_norm:g} in each tensor alone, not in all together"


def _other_norm(own: Tensor, lengths: Tensor, seen: Tensor, clip_norm: float) -> tuple[str, Tensor] | None:
    """The norm to which the rows were clipped, if it is another one.

    Between two lengths the sum is a line in the norm: that of the shorter rows, and as much of all longer directions.
    """
    order = lengths[:, 0].argsort()
    own_, long = own[order], lengths[order].clamp_min(1e-300)
    shorter = torch.cat([torch.zeros_like(own_[:1]), own_.cumsum(0)[:-1]])
    longer = (own_ / long).flip(0).cumsum(0).flip(0)
    norms = ((seen - shorter) * longer).sum(1) / longer.square().sum(1).clamp_min(1e-300)
    left = torch.linalg.vector_norm(seen - shorter - norms[:, None] * longer, dim=1)
    norm = float(norms[left.argmin()])
    entered = own * (norm / lengths.clamp_min(1e-300)).clamp(max=1)
    if norm <= 0 or not _close(seen, entered.sum(0), clip_norm):
        return None
    return f"clipped to norm {norm:.4g} instead of {clip_norm:g}", entered


def _without_modules(rows: Tensor, clip_norm: float, tensors: Mapping[str, slice]) -> Iterator[tuple[str, Tensor]]:
    """The factor of each row ``(n, 1)`` in a clip whose norms leave out a module, or one of its tensors."""
    parts: dict[str, list[str]] = {}
    for name in tensors:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    whole = rows.square().sum(1, keepdim=True)
    tried = [names for names in parts.values() if len(names) > 1] + [[name] for name in tensors]
    for names in tried[:_MODULES]:
        rest = whole - sum(rows[:, tensors[name]].square().sum(1, keepdim=True) for name in names)
        yield listed(names), (clip_norm / rest.clamp_min(1e-300).sqrt()).clamp(max=1)


def undetermined_rule(lots: Sequence[FloatArray]) -> str | None:
    """Return why the weights of several lots do not show that a row's weight depends on this row alone; None if they
    show it.

    ``lots``: the ``weights`` of each lot whose sum is not that of the stated rule. Rows of equal lengths in different
    lots are compared: a clip of a lot's mean, for one, gives each row less than one clip norm and depends on all rows.
    """
    if not lots:
        return None
    numbers = np.repeat(np.arange(len(lots)), [lot.shape[1] for lot in lots])
    lengths, weights = np.concatenate(lots, axis=1)
    order = np.lexsort((numbers, lengths))
    lengths, weights, numbers = lengths[order], weights[order], numbers[order]
    alike = (np.diff(lengths) <= _ALIKE * lengths[1:]) & (np.diff(numbers) != 0)
    larger = np.maximum(np.abs(weights[1:]), np.abs(weights[:-1]))
    # Rows that are left out have weights of rounding alone.
    apart = np.abs(np.diff(weights)) > _UNLIKE * larger + _ALIKE * np.abs(weights).max()
    if (pairs := int(alike.sum())) < _PAIRS:
        return (
            f"gradients have other weights than the stated clipping gives, and {pairs} pairs of equal norms are "
            "too few to find the rule"
        )
    # A rule that jumps at some length separates a few pairs.
    if 2 * int((alike & apart).sum()) > pairs:
        return "gradients of equal norm get different weights in different lots, which the stated clipping does not do"
    return None


def _why(one: Release) -> dict[str, str]:
    return {"cause": one.rule, "mend": _IN_SINGLE if "bfloat16" in one.rule else _MEND} if one.rule else {}


def sum_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check that each noised sum consists of rows of at most one clip norm each, in every step."""
    seen = [one for one in recording.releases if one.expected is not None and one.received is not None]
    if not seen:
        reason = recording.remarks.get("rows", "the gradients in the sums were not seen")
        return [CLIPPED.skipped(reason)]
    if (coarse := 4 * max(one.rounding for one in seen)) > _COARSE:
        witness = f"the sum is rounded by up to {coarse:.3g} clip norms, which is too coarse to be compared"
        return [CLIPPED.skipped(witness)]
    unknown: list[str] = []
    for one in seen:
        slack = max(_SLACK, 4 * one.rounding)
        if one.longest is not None and one.longest > 1 + slack:
            witness = f"clip norms that one gradient added to the sum of step {one.step}"
            given: dict[str, Any] = {"unit": "clip norms", "witness": witness, "slack": slack, **_why(one)}
            return [CLIPPED.at_most(one.longest, 1.0, **given)]
        assert one.received is not None
        assert one.expected is not None
        most = (one.rows or 0) * one.clip_norm
        length = float(torch.linalg.vector_norm(one.received.double()))
        if one.rows is not None and length > (1 + slack) * most + slack * one.clip_norm:
            witness = f"norm of the sum of step {one.step} in clip norms, from {one.rows} gradients"
            return [
                CLIPPED.at_most(length / one.clip_norm, one.rows, unit="clip norms", witness=witness, cause=one.rule)
            ]
        if one.longest is None and not _close(one.received.double(), one.expected.double(), one.clip_norm, slack):
            unknown.append(one.rule)
    if unknown:
        rule = next(filter(None, unknown), "which other rule it follows was not found")
        witness = (
            f"in {len(unknown)} of {len(seen)} steps the sum is not that of the clipped gradients ({rule}), and no "
            f"gradient is known to be too long in it: {_PLAYED}"
        )
        return [CLIPPED.skipped(witness)]
    if (unknown_rule := recording.remarks.get("weights")) is not None:
        witness = f"no gradient added more than one clip norm, but {unknown_rule}: {_PLAYED}"
        return [CLIPPED.skipped(witness)]
    if unmeasured := sum(one.longest is None for one in seen):
        witness = (
            f"in {unmeasured} of {len(seen)} steps the largest norm of a clipped gradient is not known "
            "(Release.longest)"
        )
        return [CLIPPED.skipped(witness)]
    longest = max(one.longest or 0.0 for one in seen)
    witness = f"largest norm of a clipped gradient, in {len(seen)} sums that were recomputed"
    slack = max(_SLACK, *(4 * one.rounding for one in seen))
    return [CLIPPED.at_most(longest, 1.0, unit="clip norms", witness=witness, slack=slack)]
