"""Compare guessed tokens and texts with those behind each client update, as result rows."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from ...attacks.labels.label_attack import whole_counts
from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.evidence import TokenGuesses
from ...fl.plan import Plan
from ...fl.recorder import LotRecorder
from ...fl.task import Task
from ..jobs.cell import Cell
from ..results.record import Record
from .label_rows import lots_of_round
from .labels import Interval, mean_interval, rate_interval, score_labels


def score_tokens(
    cell: Cell, evidence: TokenGuesses, task: Task, plan: Plan, lots: Mapping[int, LotRecorder]
) -> list[Record]:
    """Build the result rows of one attack on the tokens behind each client update of one round.

    Intervals are over the round's client updates, those of whole texts over texts. The reference of
    ``token_over_chance`` is a guess of the public texts' frequencies. Raises ValueError for evidence of another shape.
    """
    truth = true_texts(task, plan, lots, evidence.round)
    tokens = task.network.classes
    counts = np.stack([np.bincount(texts.ravel(), minlength=tokens) for texts in truth]).astype(np.float64)
    if counts.shape != evidence.counts.shape:
        raise ValueError(
            f"the attack's token counts must have shape {counts.shape}, with one row per client update, got "
            f"{evidence.counts.shape}"
        )
    public = np.bincount(task.test_images.long().flatten().numpy(), minlength=tokens)
    # Whole numbers: fractions of a token, of which each is too few, would be a weaker reference.
    uninformed = whole_counts(np.tile(public, (len(counts), 1)), counts.sum(1))
    rows = _count_rows(evidence.counts, counts, uninformed)
    if evidence.texts is not None:
        rows |= _text_rows(evidence.texts, truth)
    return [
        cell.record(
            metric=metric,
            value=found.value,
            ci_low=found.low,
            ci_high=found.high,
            ci_level=None if found.low is None else 0.95,
            ci_method=found.method,
            n=n,
            unit=unit,
            direction="higher_leaks",
        )
        for metric, (found, unit, n) in rows.items()
    ]


def true_texts(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> list[IntArray]:
    """Return the texts ``(k, length)`` behind each client update of ``round``, in the order of the clients that took
    part.
    """
    return [
        np.asarray(task.images[drawn].flatten(1).long().numpy(), dtype=np.int64)
        for drawn in lots_of_round(task, plan, lots, round)
    ]


def _count_rows(guessed: FloatArray, truth: FloatArray, reference: ArrayLike) -> dict[str, tuple[Interval, str, int]]:
    """Shares of the multiset of tokens and F1 of the set, over updates; all three arrays are ``(n, tokens)``."""
    scores, n = score_labels(guessed, truth, reference), len(truth)
    shared = ((guessed > 0) & (truth > 0)).sum(1)
    f1 = 2 * shared / ((guessed > 0).sum(1) + (truth > 0).sum(1))
    rows = {
        "token_accuracy": (mean_interval(scores.accuracy, scores.sizes), "share of tokens", n),
        "token_set_f1": (mean_interval(f1), "F1 of the tokens that occur", n),
    }
    corrected = scores.over_chance
    if corrected is None:
        return rows
    return {"token_over_chance": (corrected, "share of the largest possible gain over chance", n), **rows}


def _text_rows(guessed: Sequence[IntArray], truth: Sequence[IntArray]) -> dict[str, tuple[Interval, str, int]]:
    """The share of places with the right token, over updates, and of texts that are right as a whole."""
    right = [matched(ours, wanted) for ours, wanted in zip(guessed, truth, strict=True)]
    shares, sizes = [one.mean() for one in right], [len(one) for one in right]
    whole = np.concatenate([one.all(1) for one in right])
    return {
        "token_places": (mean_interval(shares, sizes), "share of places", len(right)),
        "token_exact_rate": (rate_interval(whole), "share of texts", len(whole)),
    }


def matched(guessed: ArrayLike, truth: ArrayLike) -> BoolArray:
    """Return which places of the true texts ``(k, length)`` are right, if each has the guessed text that fits it best.

    A gradient does not reveal the order of a lot's texts. ``guessed (m, length)``: a true text without one counts as
    wrong at every place. Raises ValueError for texts of another length.
    """
    ours, wanted = np.asarray(guessed, dtype=np.int64), np.asarray(truth, dtype=np.int64)
    if ours.shape[1:] != wanted.shape[1:]:
        raise ValueError(f"guessed texts must have {wanted.shape[1]} tokens, got {ours.shape[1]}")
    equal = wanted[:, None] == ours[None]
    places = linear_sum_assignment(-equal.sum(2))
    right = np.zeros(wanted.shape, dtype=np.bool_)
    right[places[0]] = equal[places]
    return right
