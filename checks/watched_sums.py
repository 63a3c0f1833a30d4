"""Compares the sum of each release before its noise with the clipped rows that came in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import CLIPPED, CheckResult
from ..fl.laws import clip
from .training_record import TrainingRecord

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
_ALIKE, _UNLIKE, _PAIRS = 1e-3, 1e-2, 8
"""Relative difference of equal lengths and of unequal weights, and pairs of rows that are compared, at least."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """The norms with which the rows of a lot entered a sum.

    ``expected``: ``(d,)``, the sum of the rows clipped by the stated rule; ``longest``: the largest length in clip
    norms, None where the sum does not determine it; ``explained``: whether the sum is one of weighted rows;
    ``weights``: of a sum that is not that of the stated rule, ``(2, n)``, the length of each row that is not zero
    before, and in the sum, in clip norms; None where they are not known or the rule is the stated one.
    """

    expected: Tensor
    longest: float | None
    explained: bool
    weights: FloatArray | None = None


def contributions(
    rows: Tensor, total: Tensor | None, clip_norm: float, *, clipped: Tensor | None = None, rounding: float = 0.0
) -> Contributions:
    """Compare the sum ``total (d,)`` with the ``rows (n, d)`` that should have entered it.

    The stated rule scales each row to ``clip_norm``, or is given as the rows ``clipped (n, d)`` after it. A sum of
    other multiples of the rows is solved for these multiples, where the rows determine them. ``rounding``: of the sum,
    in clip norms.
    """
    rows = rows.double()
    kept = clip(rows, clip_norm) if clipped is None else clipped.double()
    expected = kept.sum(0)
    if total is None or _close(total.double(), expected, clip_norm, max(_SLACK, 4 * rounding)):
        longest = float(torch.linalg.vector_norm(kept, dim=1).max()) / clip_norm if len(rows) else 0.0
        return Contributions(expected, longest, True)
    return _solved(rows, total.double(), expected, clip_norm)


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


def sum_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check that each noised sum consists of rows of at most one clip norm each, in every step."""
    seen = [one for one in recording.releases if one.expected is not None and one.received is not None]
    if not seen:
        reason = recording.remarks.get("rows", "the gradients in the sums were not seen")
        return [CLIPPED.skipped(reason)]
    if (coarse := 4 * max(one.rounding for one in seen)) > _COARSE:
        witness = f"the sum is rounded by up to {coarse:.3g} clip norms, which is too coarse to be compared"
        return [CLIPPED.skipped(witness)]
    unknown = 0
    for one in seen:
        slack = max(_SLACK, 4 * one.rounding)
        if one.longest is not None and one.longest > 1 + slack:
            witness = f"clip norms that one gradient added to the sum of step {one.step}"
            return [CLIPPED.at_most(one.longest, 1.0, unit="clip norms", witness=witness, slack=slack)]
        assert one.received is not None
        assert one.expected is not None
        most = (one.rows or 0) * one.clip_norm
        length = float(torch.linalg.vector_norm(one.received.double()))
        if one.rows is not None and length > (1 + slack) * most + slack * one.clip_norm:
            witness = f"norm of the sum of step {one.step} in clip norms, from {one.rows} gradients"
            return [CLIPPED.at_most(length / one.clip_norm, one.rows, unit="clip norms", witness=witness)]
        if one.longest is None and not _close(one.received.double(), one.expected.double(), one.clip_norm, slack):
            unknown += 1
    if unknown:
        witness = (
            f"in {unknown} of {len(seen)} steps the sum does not follow from the stated clipping: write a "
            "play_back.Step"
        )
        return [CLIPPED.skipped(witness)]
    if (unknown_rule := recording.remarks.get("weights")) is not None:
        witness = f"no gradient added more than one clip norm, but {unknown_rule}: write a play_back.Step"
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
